// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_fused_decode.h"
#include "contract/kda_packed_decode.h"
#include "cuda/common/cluster.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/kda/step.cuh"
#include "cuda/kda_decode/traits.cuh"

/// kda_fused_decode and kda_packed_decode: one token, one pass over the state.
///
/// A cluster of Z = 128 / rows CTAs serves one (request, head). A warp has one or more batches of
/// four or eight adjacent rows of the state, a lane four adjacent keys of each row.
///
///   1. Each warp asks for its rows of the state: they are on their way during the prologue.
///   2. Prologue, by role of the warp (the others have none). Packed: no convolution, no gate.
///        0  q: convolution, SiLU, norm, scale     the same in every CTA of the cluster
///        1  k: convolution, SiLU, norm            the same in every CTA of the cluster
///        2  decay of the keys, beta               the same in every CTA of the cluster
///        3  v and output gate of the CTA's rows
///      With own vectors (packed, few heads) each warp makes its lanes' keys of q, k, decay, and
///      its rows of v.
///   3. Dots of the decayed rows with k and q, reduced together; u; o = h.q + u (k.q); the updated
///      rows go back.
///   4. Output norm: four values of o of a warp are one T128 group. Each warp sends its sum of
///      squares to all CTAs of the cluster, and every warp joins them.
///
/// Barriers:
///   __syncthreads     q, k, decay, v, gate, beta stand in shared memory (none with own vectors)
///   cluster arrive A  this CTA has started and has read the windows of q and k
///   cluster wait A    so has every other: sums may be sent, and rank 0 may shift these windows
///   squares_arrived   the sums of squares of all warps of the cluster have arrived
namespace k3::cuda {

template <class Traits>
struct DecodeShared {
  float4 q[32];
  float4 k[32];
  float4 decay[32];
  float v[Traits::kRows];
  float gate[Traits::kRows];  ///< sigmoid(onorm_gate) * onorm_weight
  float beta;
  ByteBarrier squares_arrived;
  float squares[Traits::kNumSquares];  ///< sums over a warp's o^2, of all CTAs of the cluster
};

/// What a role reads that does not wait for the slot.
struct DecodeInputs {
  Bf16Quad newest;      ///< of mixed_qkv; role 2: of g
  ConvWeightQuad conv;  ///< role 2: dt_bias in `bias`
  Bf16Quad onorm_gate;  ///< role 3
  float4 onorm_weight;  ///< role 3
  float beta_logit;     ///< role 2
};

enum DecodeRole { kQuery = 0, kKey = 1, kDecay = 2, kValue = 3 };

/// Position of a CTA and of a lane in it.
template <class Traits>
struct DecodePlace {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int rank = static_cast<int>(blockIdx.x) % Traits::kClusterSize;
  int head = static_cast<int>(blockIdx.x) / Traits::kClusterSize;
  int n = static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y);

  __device__ int first_row() const { return rank * Traits::kRows; }       ///< of the CTA
  __device__ int warp_row() const { return warp * Traits::kRowsOfWarp; }  ///< in it
  /// First of the four channels of the head that a lane has in its role.
  __device__ int quad() const { return warp == kValue ? first_row() + 4 * lane : 4 * lane; }
  /// Of role 0, 1 or 3: its first channel in q|k|v.
  __device__ int channel(int H) const {
    const int part = warp == kValue ? 2 : warp;
    return (part * H + head) * kHeadDim + quad();
  }
  /// Role 3 needs only as many lanes as the CTA has groups of rows.
  __device__ bool has_role() const {
    return warp < kValue || (warp == kValue && lane < Traits::kRows / 4);
  }
};

/// What the decay's warp reads of the token.
template <class Access, class Problem, class Traits>
__device__ void load_decay(const Problem& p, const DecodePlace<Traits>& at, int in_head,
                           DecodeInputs& in) {
  in.newest = Access::load(p.g + at.n * p.g_stride + in_head);
  if (p.dt_bias != nullptr) in.conv.bias = Access::load(p.dt_bias + in_head);
  in.beta_logit = widen(p.beta[at.n * p.beta_stride + at.head]);
}

template <class Access, class Traits>
__device__ DecodeInputs load_inputs(const KdaFusedDecodeProblem& p, const DecodePlace<Traits>& at) {
  DecodeInputs in = {};
  if (!at.has_role()) return in;
  const int in_head = at.head * kHeadDim + at.quad();
  if (at.warp == kDecay) {
    load_decay<Access>(p, at, in_head, in);
    return in;
  }
  const int channel = at.channel(p.H);
  in.newest = Access::load(p.mixed_qkv + at.n * p.mixed_qkv_stride + channel);
  in.conv = load_conv_weights<Access>(p.conv_weight + channel, p.conv_weight_stride,
                                      p.conv_bias != nullptr ? p.conv_bias + channel : nullptr);
  if (at.warp == kValue && p.onorm_gate != nullptr) {
    in.onorm_gate = Access::load(p.onorm_gate + at.n * p.onorm_gate_stride + in_head);
    in.onorm_weight = Access::load(p.onorm_weight + at.quad());
  }
  return in;
}

/// The head of q and k that value head `head` uses. Most models have as many of either, and two
/// divisions are long where little else is to do.
__device__ inline int key_head(const KdaPackedDecodeProblem& p, int head) {
  return p.HV == p.H ? head : head / (p.HV / p.H);
}

template <class Access, class Traits>
__device__ DecodeInputs load_inputs(const KdaPackedDecodeProblem& p,
                                    const DecodePlace<Traits>& at) {
  DecodeInputs in = {};
  if (!at.has_role()) return in;
  const int in_head = at.head * kHeadDim + at.quad();
  if (at.warp == kDecay) {
    load_decay<Access>(p, at, in_head, in);
    return in;
  }
  const int channel = at.warp == kValue
                          ? 2 * p.H * kHeadDim + in_head
                          : (at.warp * p.H + key_head(p, at.head)) * kHeadDim + at.quad();
  in.newest = Access::load(p.mixed_qkv + at.n * p.mixed_qkv_stride + channel);
  return in;
}

/// The four channels' window before this token, in `x`; the newest tap is there already.
template <class Access>
__device__ void load_window(const KdaFusedDecodeProblem& p, std::int64_t slot, int channel,
                            ConvQuad& x) {
  const bf16* const window = p.conv_states + slot * p.conv_slot_stride + channel;
#pragma unroll
  for (int t = 0; t < kKdaConvWidth - 1; ++t)
    x.tap[t] = Access::load(window + t * p.conv_tap_stride);
}

template <class Access>
__device__ void store_shifted_window(const KdaFusedDecodeProblem& p, std::int64_t slot, int channel,
                                     const ConvQuad& x) {
  bf16* const window = p.conv_states + slot * p.conv_slot_stride + channel;
#pragma unroll
  for (int t = 0; t < kKdaConvWidth - 1; ++t)
    Access::store(window + t * p.conv_tap_stride, x.tap[t + 1]);
}

/// Step 2. Fills `shared` and, for roles with a convolution, `x`: window and newest token.
template <class Traits>
__device__ void prologue(const typename Traits::Problem& p, const DecodePlace<Traits>& at,
                         const DecodeInputs& in, DecodeShared<Traits>& shared, std::int64_t slot,
                         ConvQuad& x) {
  if (!at.has_role()) return;
  if (at.warp == kDecay) {
    const Gate gate = {gate_scale(p.A_log, at.head), p.lower_bound, p.has_lower_bound};
    shared.decay[at.lane] = decay_of(map(widen(in.newest) + in.conv.bias, gate));
    if (at.lane == 0) shared.beta = sigmoid(in.beta_logit);
    return;
  }
  float4 y = widen(in.newest);
  if constexpr (Traits::kFused) {
    x.tap[kKdaConvWidth - 1] = in.newest;
    y = conv_silu(in.conv, x, p.round_conv);
  }
  if (at.warp == kQuery) {
    shared.q[at.lane] = normalised_query(y, p.scale);
  } else if (at.warp == kKey) {
    shared.k[at.lane] = normalised_key(y);
  } else {
    reinterpret_cast<float4*>(shared.v)[at.lane] = y;
    if constexpr (Traits::kFused) {
      if (p.onorm_gate != nullptr)
        reinterpret_cast<float4*>(shared.gate)[at.lane] =
            map(widen(in.onorm_gate), sigmoid) * in.onorm_weight;
      store_shifted_window<typename Traits::Access>(p, slot, at.channel(p.H), x);
    }
  }
}

/// First row of the CTA.
template <class Traits>
__device__ typename Traits::StateT* state_rows(const typename Traits::Problem& p,
                                               const DecodePlace<Traits>& at, std::int64_t slot) {
  return static_cast<typename Traits::StateT*>(p.state) + slot * p.state_slot_stride +
         std::int64_t{at.head} * kHeadElements + at.first_row() * kHeadDim;
}

/// Before the wait for the previous grid: asks for what the CTA will load, the slot's part for the
/// slot that the index tensor seems to name. A wrong guess costs a little bandwidth and nothing
/// else. The rows are asked for in one piece: memory serves that better than the warps' loads, so
/// that it also pays where there is nothing to wait for.
template <class Traits>
__device__ void ask_early(const typename Traits::Problem& p, const DecodePlace<Traits>& at,
                          std::int64_t slot, DecodeEarly early) {
  load_inputs<QuadPrefetch>(p, at);
  if (slot == p.num_slots) return;
  if constexpr (Traits::kVector) {
    if (early == DecodeEarly::kAll && threadIdx.x == 0)
      prefetch_l2(state_rows<Traits>(p, at, slot),
                  Traits::kRows * kHeadDim * sizeof(typename Traits::StateT));
  }
  if constexpr (Traits::kFused) {
    ConvQuad window;
    if (at.has_role() && at.warp != kDecay)
      load_window<QuadPrefetch>(p, slot, at.channel(p.H), window);
  }
}

/// Sum of the warp's o^2: T128 groups of four rows, then the tree's levels over all its rows.
template <class Traits>
__device__ float sum_of_squares(const float (&o)[Traits::kBatches]) {
  constexpr int kBatch = Traits::kBatch;
  constexpr int kGroups = Traits::kRowsOfWarp / 4;
  const auto of_row = [&](int r) {
    return __shfl_sync(warp::kAllLanes, o[r / kBatch], r % kBatch, kBatch);
  };
  float squares[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const float4 group = {of_row(4 * g), of_row(4 * g + 1), of_row(4 * g + 2), of_row(4 * g + 3)};
    squares[g] = t128_group(group, group);
  }
#pragma unroll
  for (int n = kGroups / 2; n > 0; n /= 2)
#pragma unroll
    for (int g = 0; g < n; ++g) squares[g] = squares[2 * g] + squares[2 * g + 1];
  return squares[0];
}

/// Step 4 of the fused form, and the shift of the windows that the cluster shares. Takes the o of
/// rows `row` + kBatch b of the CTA and leaves what is to be written.
template <class Traits>
__device__ void finish_fused(const KdaFusedDecodeProblem& p, const DecodePlace<Traits>& at,
                             std::int64_t slot, const ConvQuad& window,
                             DecodeShared<Traits>& shared, int row, float (&o)[Traits::kBatches]) {
  if (p.round_o == Rounding::kBF16)
#pragma unroll
    for (float& x : o) x = round_to_bf16(x);
  if constexpr (Traits::kHasCluster) cluster_wait();
  if (at.rank == 0 && at.warp <= kKey)
    store_shifted_window<typename Traits::Access>(p, slot, at.channel(p.H), window);
  if (p.onorm_gate == nullptr) return;

  const float of_warp = sum_of_squares<Traits>(o);
  float* const squares = &shared.squares[at.rank * Traits::kWarps + at.warp];
  if constexpr (Traits::kHasCluster) {
    if (at.lane < Traits::kClusterSize) send(squares, &shared.squares_arrived, at.lane, of_warp);
    wait(&shared.squares_arrived);
  } else {
    if (at.lane == 0) *squares = of_warp;
    __syncthreads();
  }
  const float sum = warp::sum<Traits::kNumSquares>(shared.squares[at.lane % Traits::kNumSquares]);
  const float scale = inverse_rms(sum, p.eps_o);
#pragma unroll
  for (int b = 0; b < Traits::kBatches; ++b)
    o[b] = o[b] * scale * shared.gate[row + Traits::kBatch * b];
}

/// What a CTA takes from its slot: on its way from memory during the prologue.
template <class Traits>
struct SlotLoads {
  ConvQuad window;
  typename StateQuad<typename Traits::StateT>::Type state[Traits::kAhead][Traits::kBatch];
};

/// The window first: the prologue waits for it, and it is small.
template <class Traits>
__device__ void load_slot(const typename Traits::Problem& p, const DecodePlace<Traits>& at,
                          std::int64_t slot, SlotLoads<Traits>& loads) {
  if constexpr (Traits::kFused)
    if (at.has_role() && at.warp != kDecay)
      load_window<typename Traits::Access>(p, slot, at.channel(p.H), loads.window);
  const auto* const rows = state_rows<Traits>(p, at, slot) + at.warp_row() * kHeadDim + 4 * at.lane;
#pragma unroll
  for (int b = 0; b < Traits::kAhead; ++b)
#pragma unroll
    for (int r = 0; r < Traits::kBatch; ++r)
      loads.state[b][r] = Traits::StateAccess::load(rows + (b * Traits::kBatch + r) * kHeadDim);
}

/// A lane's four keys of q, k and decay.
struct DecodeVectors {
  float4 q;
  float4 k;
  float4 decay;
  float beta;
};

template <class Traits>
__device__ DecodeVectors vectors_of(const DecodeShared<Traits>& shared, int lane) {
  return {shared.q[lane], shared.k[lane], shared.decay[lane], shared.beta};
}

/// Step 2 of the packed form with few heads: what a warp reads to make all vectors itself.
template <class Traits>
struct OwnInputs {
  Bf16Quad q;
  Bf16Quad k;
  Bf16Quad g;
  float4 dt_bias = {0.0F, 0.0F, 0.0F, 0.0F};
  bf16 v[Traits::kBatches];  ///< of rows `row` + kBatch b of the CTA
  bf16 beta;
  float A_log = 0.0F;

  __device__ OwnInputs(const KdaPackedDecodeProblem& p, const DecodePlace<Traits>& at, int row) {
    using Access = typename Traits::Access;
    const bf16* const qkv = p.mixed_qkv + at.n * p.mixed_qkv_stride;
    const int keys = 4 * at.lane;
    const int in_head = at.head * kHeadDim + keys;
    const int of_keys = key_head(p, at.head);
    k = Access::load(qkv + (p.H + of_keys) * kHeadDim + keys);
    q = Access::load(qkv + of_keys * kHeadDim + keys);
    g = Access::load(p.g + at.n * p.g_stride + in_head);
    if (p.dt_bias != nullptr) dt_bias = Access::load(p.dt_bias + in_head);
    beta = p.beta[at.n * p.beta_stride + at.head];
    if (p.A_log != nullptr) A_log = p.A_log[at.head];
    const bf16* const values = qkv + (2 * p.H + at.head) * kHeadDim + at.first_row() + row;
#pragma unroll
    for (int b = 0; b < Traits::kBatches; ++b) v[b] = values[b * Traits::kBatch];
  }

  __device__ DecodeVectors vectors(const KdaPackedDecodeProblem& p) const {
    const Gate gate = {expf(A_log), p.lower_bound, p.has_lower_bound};
    return {normalised_query(widen(q), p.scale), normalised_key(widen(k)),
            decay_of(map(widen(g) + dt_bias, gate)), sigmoid(widen(beta))};
  }
};

/// Step 3. `row` is the lane's of the first batch, in the CTA: of each batch a lane holds the
/// scalars of row lane % kBatch. `value(b)` is that row's v. Leaves o before the norm.
template <class Traits, class Value>
__device__ void step_rows(const DecodePlace<Traits>& at, const DecodeVectors& x, const Value& value,
                          typename Traits::StateT* rows, SlotLoads<Traits>& loads,
                          float (&o)[Traits::kBatches]) {
  using StateAccess = typename Traits::StateAccess;
  using State = StateQuad<typename Traits::StateT>;
  constexpr int kBatch = Traits::kBatch;
  constexpr int kAhead = Traits::kAhead;
  const float qk = warp::sum(t128_group(x.k, x.q));
#pragma unroll
  for (int b = 0; b < Traits::kBatches; ++b) {
    float4 h[kBatch];
    float hk[kBatch];
    float hq[kBatch];
#pragma unroll
    for (int r = 0; r < kBatch; ++r) {
      h[r] = State::widen(loads.state[b % kAhead][r]) * x.decay;
      hk[r] = t128_group(h[r], x.k);
      hq[r] = t128_group(h[r], x.q);
    }
    if (b + kAhead < Traits::kBatches)
#pragma unroll
      for (int r = 0; r < kBatch; ++r)
        loads.state[b % kAhead][r] =
            StateAccess::load(rows + ((b + kAhead) * kBatch + r) * kHeadDim);
    const float u = (value(b) - t128_scatter<32>(hk, at.lane)) * x.beta;
    o[b] = fmaf(u, qk, t128_scatter<32>(hq, at.lane));
#pragma unroll
    for (int r = 0; r < kBatch; ++r)
      StateAccess::store(rows + (b * kBatch + r) * kHeadDim,
                         State::narrow(fma(x.k, __shfl_sync(warp::kAllLanes, u, r, kBatch), h[r])));
  }
}

template <class Traits>
__global__ __launch_bounds__(Traits::kNumThreads) void kda_decode_kernel(const __grid_constant__
                                                                         typename Traits::Problem p,
                                                                         DecodeEarly early) {
  __shared__ DecodeShared<Traits> shared;
  const DecodePlace<Traits> at;
  if (at.n >= p.B) return;
  const auto is_live = [&](std::int64_t slot) { return slot > p.null_index && slot < p.num_slots; };

  if constexpr (Traits::kHasCluster)
    if (threadIdx.x == 0) arm(&shared.squares_arrived, sizeof(shared.squares));
  if constexpr (Traits::kOwnVectors) pdl_launch_dependents();
  const std::int32_t* const index = p.state_indices.data + at.n * p.state_indices.stride;
  std::int64_t slot = p.num_slots;
  if (early != DecodeEarly::kNothing) {
    slot = load_guess(index);
    ask_early<Traits>(p, at, is_live(slot) ? slot : p.num_slots, early);
  }
  pdl_wait();

  const int row = at.warp_row() + at.lane % Traits::kBatch;
  const auto in = [&] {
    if constexpr (Traits::kOwnVectors)
      return OwnInputs<Traits>(p, at, row);
    else
      return load_inputs<typename Traits::Access>(p, at);
  }();
  SlotLoads<Traits> loads;
  if (is_live(slot)) load_slot<Traits>(p, at, slot, loads);
  if (const std::int64_t known = *index; known != slot) {
    slot = known;
    if (is_live(slot)) load_slot<Traits>(p, at, slot, loads);
  }
  bf16* const out = p.out + at.n * p.out_stride + at.head * kHeadDim + at.first_row();
  if (!is_live(slot)) {
    for (int r = threadIdx.x; r < Traits::kRows; r += Traits::kNumThreads) out[r] = bf16{};
    return;
  }

  auto* const rows = state_rows<Traits>(p, at, slot) + at.warp_row() * kHeadDim + 4 * at.lane;
  float o[Traits::kBatches];
  if constexpr (Traits::kOwnVectors) {
    const auto value = [&](int b) { return widen(in.v[b]); };
    step_rows(at, in.vectors(p), value, rows, loads, o);
  } else {
    pdl_launch_dependents();
    prologue(p, at, in, shared, slot, loads.window);
    __syncthreads();
    if constexpr (Traits::kHasCluster) cluster_arrive_relaxed();
    const auto value = [&](int b) { return shared.v[row + Traits::kBatch * b]; };
    step_rows(at, vectors_of(shared, at.lane), value, rows, loads, o);
  }

  if constexpr (Traits::kFused) finish_fused(p, at, slot, loads.window, shared, row, o);
  if (at.lane < Traits::kBatch)
#pragma unroll
    for (int b = 0; b < Traits::kBatches; ++b) out[row + Traits::kBatch * b] = narrow(o[b]);
}

}  // namespace k3::cuda
