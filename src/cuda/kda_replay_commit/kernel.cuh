// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_replay_commit.h"
#include "cuda/common/pdl.cuh"
#include "cuda/kda/chain.cuh"

/// kda_replay_commit: the accepted tokens of a chain folded into the state, all layers in one grid.
///
/// Z = 4 CTAs of four warps serve one (layer, request, head); a CTA has 32 rows of the state, a
/// warp eight, in registers from first to last token (kda/chain.cuh).
///
///   1. Every warp asks for its rows.
///   2. Tokens, up to 16 at a time: a warp takes one after the other, reads k, gate and v, and
///      leaves normalised k, decay, v and beta in shared memory.
///   3. Chain over these tokens; back to 2 while there are more.
///   4. Rows back to the slot (and, on the way, to the tracked slot).
/// The windows of a (layer, request) are copied by all of its CTAs together, a piece each.
///
/// Barriers: __syncthreads before and after each chain.
namespace k3::cuda {

/// @tparam StateT_   float or bf16
/// @tparam RingT_    of ring_k and ring_v: bf16 or float
/// @tparam Layout_   ChainLayout of a warp
/// @tparam kVector_  16-byte accesses (8 for bf16); else one an element, for any alignment
template <class StateT_, class RingT_, class Layout_, bool kVector_>
struct CommitTraits {
  using Layout = Layout_;
  using StateT = StateT_;
  using RingT = RingT_;
  using Access = QuadAccess<kVector_>;
  static constexpr int kWarps = 4;
  static constexpr int kNumThreads = 32 * kWarps;
  static constexpr int kRows = kWarps * Layout::kWarpRows;
  static constexpr int kSplit = kHeadDim / kRows;  ///< CTAs of a head
  static constexpr int kTokens = 16;               ///< made at a time
  /// On an SM: without this bound ptxas takes registers for four.
  static constexpr int kMinCtas = 5;
};

template <class Traits>
struct CommitToken {
  ChainVector<typename Traits::Layout> k;
  ChainVector<typename Traits::Layout> decay;
  float v[Traits::kRows];
  float beta;
  float padding[3];
};

/// One CTA's view of its request.
template <class Traits>
struct CommitTask {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int part = static_cast<int>(blockIdx.x) % Traits::kSplit;
  int head = static_cast<int>(blockIdx.x) / Traits::kSplit;
  int n = static_cast<int>(blockIdx.y);
  std::int64_t layer = blockIdx.z;
  std::int64_t slot = 0;
  std::int64_t ring_row = 0;
  int length = 0;                ///< A, tokens to take over
  std::int64_t track_slot = -1;  ///< -1: none
  int track_step = -1;

  __device__ int first_row() const { return part * Traits::kRows; }
};

/// Reads the index lists; false where the request changes nothing.
template <class Traits>
__device__ bool find_request(const KdaReplayCommitProblem& p, CommitTask<Traits>& task) {
  const auto at = [&](const IndexList& list) { return list.data[task.n * list.stride]; };
  const auto is_live = [&](std::int64_t slot) { return slot > p.null_index && slot < p.num_slots; };
  task.slot = at(p.state_indices);
  task.ring_row = p.ring_indices.data != nullptr ? at(p.ring_indices) : task.slot;
  task.length = min(at(p.accept_lens), p.L);
  if (p.track_indices.data != nullptr) {
    const std::int64_t slot = at(p.track_indices);
    const int step = at(p.track_steps);
    if (is_live(slot) && step >= 0 && step < task.length) {
      task.track_slot = slot;
      task.track_step = step;
    }
  }
  return is_live(task.slot) && task.ring_row >= 0 && task.ring_row < p.num_ring_rows &&
         task.length > 0;
}

/// Copies the window after token `step` to a slot: this CTA's piece of its channels.
template <class Traits>
__device__ void roll_window(const KdaReplayCommitProblem& p, const CommitTask<Traits>& task,
                            std::int64_t scratch_row, int step, std::int64_t slot) {
  using Access = typename Traits::Access;
  const bf16* const from = p.conv_scratch + task.layer * p.scratch_layer_stride +
                           scratch_row * p.scratch_row_stride + step * p.scratch_token_stride;
  bf16* const to = p.conv_states + task.layer * p.conv_layer_stride + slot * p.conv_slot_stride;
  const int threads = static_cast<int>(gridDim.x) * Traits::kNumThreads;
  const int thread = static_cast<int>(blockIdx.x * Traits::kNumThreads + threadIdx.x);
  const int quads = p.C / 4;
  for (int tap = 0; tap < kKdaConvWidth - 1; ++tap) {
    const bf16* const from_tap = from + tap * p.scratch_tap_stride;
    bf16* const to_tap = to + tap * p.conv_tap_stride;
    for (int quad = thread; quad < quads; quad += threads)
      Access::store(to_tap + 4 * quad, Access::load(from_tap + 4 * quad));
    for (int c = 4 * quads + thread; c < p.C; c += threads) to_tap[c] = from_tap[c];
  }
}

template <class Traits>
__device__ void roll_windows(const KdaReplayCommitProblem& p, const CommitTask<Traits>& task) {
  const std::int64_t row = p.scratch_indices.data != nullptr
                               ? p.scratch_indices.data[task.n * p.scratch_indices.stride]
                               : task.n;
  if (row < 0 || row >= p.num_scratch_rows || p.Ts <= 0) return;
  roll_window(p, task, row, min(task.length, p.Ts) - 1, task.slot);
  if (task.track_slot >= 0)
    roll_window(p, task, row, min(task.track_step, p.Ts - 1), task.track_slot);
}

/// A token as the rings hold it: four channels a lane.
struct RingToken {
  float4 k;
  float4 g;  ///< log decay, or raw gate plus bias
  float4 v;  ///< of the CTA's rows, in the first lanes
  float beta;
};

/// A head's rings, and how its gates become log decays.
template <class Traits>
struct Rings {
  using RingT = typename Traits::RingT;
  const RingT* k;
  const RingT* v;
  const void* g;
  const float* beta;
  Gate gate = {};
  float4 bias = {};
  bool gate_is_raw;
  bool normalises_k;

  __device__ Rings(const KdaReplayCommitProblem& p, const CommitTask<Traits>& task)
      : gate_is_raw(p.ring_g_dtype == DType::kBF16), normalises_k(p.qk_l2norm) {
    const std::int64_t head = std::int64_t{task.head} * p.L * kHeadDim;
    const std::int64_t k_head = std::int64_t{task.head / (p.HV / p.H)} * p.L * kHeadDim;
    k = static_cast<const RingT*>(p.ring_k) + task.layer * p.ring_k_layer_stride +
        task.ring_row * p.ring_k_row_stride + k_head + 4 * task.lane;
    v = static_cast<const RingT*>(p.ring_v) + task.layer * p.ring_v_layer_stride +
        task.ring_row * p.ring_v_row_stride + head + task.first_row() + 4 * task.lane;
    const std::int64_t g_at = task.layer * p.ring_g_layer_stride +
                              task.ring_row * p.ring_g_row_stride + head + 4 * task.lane;
    beta = p.ring_beta + task.layer * p.ring_beta_layer_stride +
           task.ring_row * p.ring_beta_row_stride + std::int64_t{task.head} * p.L;
    if (!gate_is_raw) {
      g = static_cast<const float*>(p.ring_g) + g_at;
      return;
    }
    g = static_cast<const bf16*>(p.ring_g) + g_at;
    const float* const A_log =
        p.A_log != nullptr ? p.A_log + task.layer * p.A_log_layer_stride : nullptr;
    gate = {gate_scale(A_log, task.head), p.lower_bound, p.has_lower_bound};
    if (p.dt_bias != nullptr)
      bias = Traits::Access::load(p.dt_bias + task.layer * p.dt_bias_layer_stride +
                                  task.head * kHeadDim + 4 * task.lane);
  }

  __device__ RingToken load(int t, int lane) const {
    using Access = typename Traits::Access;
    const int at = t * kHeadDim;
    RingToken token;
    token.k = StateQuad<RingT>::widen(Access::load(k + at));
    token.g = gate_is_raw ? widen(Access::load(static_cast<const bf16*>(g) + at)) + bias
                          : Access::load(static_cast<const float*>(g) + at);
    if (lane < Traits::kRows / 4) token.v = StateQuad<RingT>::widen(Access::load(v + at));
    token.beta = beta[t];
    return token;
  }

  __device__ void make(const RingToken& from, int lane, CommitToken<Traits>& token) const {
    if (lane < Traits::kRows / 4) reinterpret_cast<float4*>(token.v)[lane] = from.v;
    if (lane == 0) token.beta = from.beta;
    token.decay.set(lane, decay_of(gate_is_raw ? map(from.g, gate) : from.g));
    token.k.set(lane, normalises_k ? normalised_key(from.k) : from.k);
  }
};

template <class Traits>
__global__ __launch_bounds__(Traits::kNumThreads, Traits::kMinCtas) void kda_replay_commit_kernel(
    const __grid_constant__ KdaReplayCommitProblem p) {
  using StateT = typename Traits::StateT;
  using Access = typename Traits::Access;
  using Layout = typename Traits::Layout;
  __shared__ CommitToken<Traits> tokens[Traits::kTokens];
  CommitTask<Traits> task;
  pdl_wait();
  if (!find_request(p, task)) return;

  const auto warp_rows = [&](std::int64_t slot) {
    return static_cast<StateT*>(p.state) + task.layer * p.state_layer_stride +
           slot * p.state_slot_stride + std::int64_t{task.head} * kHeadElements +
           (task.first_row() + task.warp * Layout::kWarpRows) * kHeadDim;
  };
  // The first tokens before the rows: the chain starts with them, and they are small.
  const Rings<Traits> rings(p, task);
  RingToken first = {};
  if (task.warp < task.length) first = rings.load(task.warp, task.lane);
  ChainRows<Layout> h;
  load_chain<Layout, Access>(static_cast<const StateT*>(warp_rows(task.slot)), task.lane, h);
  pdl_launch_dependents();
  if (p.conv_states != nullptr) roll_windows(p, task);

  const int scalar_row = task.warp * Layout::kWarpRows + chain_scalar_row<Layout>(task.lane);
  for (int t0 = 0; t0 < task.length; t0 += Traits::kTokens) {
    const int count = min(Traits::kTokens, task.length - t0);
    for (int t = task.warp; t < count; t += Traits::kWarps)
      rings.make(t0 + t == task.warp ? first : rings.load(t0 + t, task.lane), task.lane, tokens[t]);
    __syncthreads();
    for (int t = 0; t < count; ++t) {
      const CommitToken<Traits>& token = tokens[t];
      const ChainDots dots =
          decay_and_dot<Layout, false>(h, token.decay, token.k, nullptr, task.lane);
      update_chain<Layout, StateT>(h, token.k, (token.v[scalar_row] - dots.hk) * token.beta,
                                   task.lane);
      if (t0 + t == task.track_step)
        store_chain<Layout, Access>(warp_rows(task.track_slot), task.lane, h);
    }
    __syncthreads();
  }
  store_chain<Layout, Access>(warp_rows(task.slot), task.lane, h);
}

}  // namespace k3::cuda
