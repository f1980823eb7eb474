// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "cuda/kda/step.cuh"

/// Several KDA steps on a state that stays in registers: what verify and replay have in common.
///
/// Eight lanes hold a row, 16 adjacent keys (four T128 groups) each, so that two levels of the tree
/// need no shuffle; a warp holds kBatches times four rows: row 4 b + lane / 8, keys 16 (lane % 8)
/// on.
namespace k3::cuda {

inline constexpr int kChainBatch = 4;  ///< rows
inline constexpr int kChainLanes = 8;  ///< of a row
inline constexpr int kChainQuads = 4;  ///< of a lane and row

template <int kBatches>
using ChainRows = float4[kBatches][kChainQuads];

/// 128 values of a token as the chain reads them: quad i of the lane with keys 16 l .. 16 l + 15
/// stands at 8 i + l, so that eight lanes read 128 bytes in a row.
struct ChainVector {
  float4 quads[32];

  __device__ void set(int quad, float4 value) { quads[8 * (quad % 4) + quad / 4] = value; }
  __device__ float4 of_lane(int lane, int i) const { return quads[8 * i + lane % kChainLanes]; }
};

/// First key of a lane and row of a batch, from the warp's first row on.
__device__ inline int chain_offset(int lane, int batch) {
  return (kChainBatch * batch + lane / kChainLanes) * kHeadDim + 16 * (lane % kChainLanes);
}

/// `from` points at the warp's first row.
template <class Access, int kBatches, class StateT>
__device__ void load_chain(const StateT* from, int lane, ChainRows<kBatches>& h) {
#pragma unroll
  for (int b = 0; b < kBatches; ++b)
#pragma unroll
    for (int i = 0; i < kChainQuads; ++i)
      h[b][i] = StateQuad<StateT>::widen(Access::load(from + chain_offset(lane, b) + 4 * i));
}

template <class Access, int kBatches, class StateT>
__device__ void store_chain(StateT* to, int lane, const ChainRows<kBatches>& h) {
#pragma unroll
  for (int b = 0; b < kBatches; ++b)
#pragma unroll
    for (int i = 0; i < kChainQuads; ++i)
      Access::store(to + chain_offset(lane, b) + 4 * i, StateQuad<StateT>::narrow(h[b][i]));
}

/// Of the row in batch lane % kBatches.
struct ChainDots {
  float hk;  ///< decayed row . k
  float hq;  ///< decayed row . q
  float qk;  ///< k . q
};

/// Decays the rows and takes their dots; without `q` only the one with k.
template <bool kHasQuery, int kBatches>
__device__ ChainDots decay_and_dot(ChainRows<kBatches>& h, const ChainVector& decay,
                                   const ChainVector& k, const ChainVector* q, int lane) {
  // Groups of a lane are joined as they come: (0 + 1) + (2 + 3).
  float hk[2][kBatches];
  float hq[2][kBatches];
  float qk[2];
  const auto join = [](int i, float& sum, float group) { sum = i % 2 == 0 ? group : sum + group; };
#pragma unroll
  for (int i = 0; i < kChainQuads; ++i) {
    const float4 d = decay.of_lane(lane, i);
    const float4 ki = k.of_lane(lane, i);
    float4 qi = {};
    if constexpr (kHasQuery) {
      qi = q->of_lane(lane, i);
      join(i, qk[i / 2], t128_group(ki, qi));
    }
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      h[b][i] = h[b][i] * d;
      join(i, hk[i / 2][b], t128_group(h[b][i], ki));
      if constexpr (kHasQuery) join(i, hq[i / 2][b], t128_group(h[b][i], qi));
    }
  }
  ChainDots dots = {};
#pragma unroll
  for (int b = 0; b < kBatches; ++b) hk[0][b] += hk[1][b];
  dots.hk = t128_scatter<kChainLanes>(hk[0], lane);
  if constexpr (kHasQuery) {
#pragma unroll
    for (int b = 0; b < kBatches; ++b) hq[0][b] += hq[1][b];
    dots.hq = t128_scatter<kChainLanes>(hq[0], lane);
    dots.qk = t128_all_lanes<kChainLanes>(qk[0] + qk[1]);
  }
  return dots;
}

/// h += u k^T, rounded to what a state of this type holds. `u` is of the row in batch
/// lane % kBatches.
template <class StateT, int kBatches>
__device__ void update_chain(ChainRows<kBatches>& h, const ChainVector& k, float u, int lane) {
  float u_of[kBatches];
#pragma unroll
  for (int b = 0; b < kBatches; ++b) u_of[b] = __shfl_sync(kFullWarp, u, b, kChainLanes);
#pragma unroll
  for (int i = 0; i < kChainQuads; ++i) {
    const float4 ki = k.of_lane(lane, i);
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      h[b][i] = fma(ki, u_of[b], h[b][i]);
      if constexpr (sizeof(StateT) == sizeof(bf16)) h[b][i] = round_to_bf16(h[b][i]);
    }
  }
}

}  // namespace k3::cuda
