// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "cuda/kda/step.cuh"

/// Several KDA steps on a state that stays in registers: what verify and replay have in common.
///
/// kLanes lanes hold a row, 128 / kLanes adjacent keys (kQuads T128 groups) each; a warp holds
/// kBatches times kBatchRows = 32 / kLanes rows: row kBatchRows * b + lane / kLanes. Fewer lanes a
/// row do more levels of the tree without shuffles, more lanes reach memory in longer pieces.
namespace k3::cuda {

template <int kLanes_, int kBatches_>
struct ChainLayout {
  static constexpr int kLanes = kLanes_;          ///< of a row
  static constexpr int kQuads = 32 / kLanes;      ///< of a lane and row
  static constexpr int kBatchRows = 32 / kLanes;  ///< that a warp takes at once
  static constexpr int kBatches = kBatches_;
  static constexpr int kWarpRows = kBatches * kBatchRows;
  static_assert(kBatches <= kLanes && (kBatches & (kBatches - 1)) == 0);
};

template <class Layout>
using ChainRows = float4[Layout::kBatches][Layout::kQuads];

/// 128 values of a token as the chain reads them: quad i of lane l of a row stands at kLanes i + l,
/// so that the lanes of a row read without bank conflicts.
template <class Layout>
struct ChainVector {
  float4 quads[32];

  __device__ void set(int quad, float4 value) {
    quads[Layout::kLanes * (quad % Layout::kQuads) + quad / Layout::kQuads] = value;
  }
  __device__ float4 get(int quad) const {
    return quads[Layout::kLanes * (quad % Layout::kQuads) + quad / Layout::kQuads];
  }
  __device__ float4 of_lane(int lane, int i) const {
    return quads[Layout::kLanes * i + lane % Layout::kLanes];
  }
};

/// First key of a lane and row of a batch, from the warp's first row on.
template <class Layout>
__device__ int chain_offset(int lane, int batch) {
  return (Layout::kBatchRows * batch + lane / Layout::kLanes) * kHeadDim +
         4 * Layout::kQuads * (lane % Layout::kLanes);
}

/// `from` points at the warp's first row.
template <class Layout, class Access, class StateT>
__device__ void load_chain(const StateT* from, int lane, ChainRows<Layout>& h) {
#pragma unroll
  for (int b = 0; b < Layout::kBatches; ++b)
#pragma unroll
    for (int i = 0; i < Layout::kQuads; ++i)
      h[b][i] =
          StateQuad<StateT>::widen(Access::load(from + chain_offset<Layout>(lane, b) + 4 * i));
}

/// A warp's shared memory for a change of layout; two batches take turns.
template <class Layout>
struct ChainExchange {
  float4 quads[2][Layout::kBatchRows][32];

  /// Where a quad of a row stands: neither eight lanes that bring a row's adjacent quads nor eight
  /// that take what the chain wants at once meet in a bank.
  __device__ static int place(int row, int quad) { return quad ^ (quad >> 3) ^ (4 * (row & 1)); }
};

/// As load_chain, but memory is read in the longest pieces: all lanes of the warp take one row.
template <class Layout, class Access, class StateT>
__device__ void load_chain_by_rows(const StateT* from, int lane, ChainExchange<Layout>& exchange,
                                   ChainRows<Layout>& h) {
  using Exchange = ChainExchange<Layout>;
  constexpr int kBatchRows = Layout::kBatchRows;
  typename StateQuad<StateT>::Type rows[Layout::kBatches][kBatchRows];
#pragma unroll
  for (int b = 0; b < Layout::kBatches; ++b)
#pragma unroll
    for (int r = 0; r < kBatchRows; ++r)
      rows[b][r] = Access::load(from + (kBatchRows * b + r) * kHeadDim + 4 * lane);
#pragma unroll
  for (int b = 0; b < Layout::kBatches; ++b) {
    auto& quads = exchange.quads[b % 2];
#pragma unroll
    for (int r = 0; r < kBatchRows; ++r)
      quads[r][Exchange::place(r, lane)] = StateQuad<StateT>::widen(rows[b][r]);
    __syncwarp();
    const int row = lane / Layout::kLanes;
#pragma unroll
    for (int i = 0; i < Layout::kQuads; ++i)
      h[b][i] = quads[row][Exchange::place(row, Layout::kQuads * (lane % Layout::kLanes) + i)];
  }
}

template <class Layout, class Access, class StateT>
__device__ void store_chain(StateT* to, int lane, const ChainRows<Layout>& h) {
#pragma unroll
  for (int b = 0; b < Layout::kBatches; ++b)
#pragma unroll
    for (int i = 0; i < Layout::kQuads; ++i)
      Access::store(to + chain_offset<Layout>(lane, b) + 4 * i, StateQuad<StateT>::narrow(h[b][i]));
}

/// The row, from the warp's first on, whose scalars a lane holds: that of batch lane % kBatches.
template <class Layout>
__device__ int chain_scalar_row(int lane) {
  return Layout::kBatchRows * (lane % Layout::kBatches) + lane / Layout::kLanes;
}

/// Scalars of that row.
struct ChainDots {
  float hk;  ///< decayed row . k
  float hq;  ///< decayed row . q
};

/// Decays the rows and takes their dots; without `q` only the one with k.
template <class Layout, bool kHasQuery>
__device__ ChainDots decay_and_dot(ChainRows<Layout>& h, const ChainVector<Layout>& decay,
                                   const ChainVector<Layout>& k, const ChainVector<Layout>* q,
                                   int lane) {
  constexpr int kBatches = Layout::kBatches;
  constexpr int kQuads = Layout::kQuads;
  // Groups of a lane are joined as they come: (0 + 1) + (2 + 3).
  constexpr int kPairs = (kQuads + 1) / 2;
  float hk[kPairs][kBatches];
  float hq[kPairs][kBatches];
  const auto join = [](int i, float& sum, float group) { sum = i % 2 == 0 ? group : sum + group; };
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const float4 d = decay.of_lane(lane, i);
    const float4 ki = k.of_lane(lane, i);
    float4 qi = {};
    if constexpr (kHasQuery) qi = q->of_lane(lane, i);
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      h[b][i] = h[b][i] * d;
      join(i, hk[i / 2][b], t128_group(h[b][i], ki));
      if constexpr (kHasQuery) join(i, hq[i / 2][b], t128_group(h[b][i], qi));
    }
  }
  static_assert(kPairs <= 2, "the tree's third level in a lane is not written");
  if constexpr (kPairs == 2) {
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      hk[0][b] += hk[1][b];
      if constexpr (kHasQuery) hq[0][b] += hq[1][b];
    }
  }
  ChainDots dots = {};
  dots.hk = t128_scatter<Layout::kLanes>(hk[0], lane);
  if constexpr (kHasQuery) dots.hq = t128_scatter<Layout::kLanes>(hq[0], lane);
  return dots;
}

/// h += u k^T, rounded to what a state of this type holds. `u` is of the lane's scalar row.
template <class Layout, class StateT>
__device__ void update_chain(ChainRows<Layout>& h, const ChainVector<Layout>& k, float u,
                             int lane) {
  float u_of[Layout::kBatches];
#pragma unroll
  for (int b = 0; b < Layout::kBatches; ++b)
    u_of[b] = __shfl_sync(warp::kAllLanes, u, b, Layout::kLanes);
#pragma unroll
  for (int i = 0; i < Layout::kQuads; ++i) {
    const float4 ki = k.of_lane(lane, i);
#pragma unroll
    for (int b = 0; b < Layout::kBatches; ++b) {
      h[b][i] = fma(ki, u_of[b], h[b][i]);
      if constexpr (sizeof(StateT) == sizeof(bf16)) h[b][i] = round_to_bf16(h[b][i]);
    }
  }
}

}  // namespace k3::cuda
