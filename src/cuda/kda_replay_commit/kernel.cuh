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
/// @tparam kVector_  16-byte accesses (8 for bf16); else one an element, for any alignment
template <class StateT_, class RingT_, bool kVector_>
struct CommitTraits {
  using StateT = StateT_;
  using RingT = RingT_;
  using Access = QuadAccess<kVector_>;
  static constexpr int kWarps = 4;
  static constexpr int kNumThreads = 32 * kWarps;
  static constexpr int kBatches = 2;
  static constexpr int kWarpRows = kChainBatch * kBatches;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kSplit = kHeadDim / kRows;  ///< CTAs of a head
  static constexpr int kTokens = 16;               ///< made at a time
};

template <class Traits>
struct CommitToken {
  ChainVector k;
  ChainVector decay;
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

  __device__ CommitTask() = default;
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
  if (task.track_slot >= 0 && task.track_step < p.Ts)
    roll_window(p, task, row, task.track_step, task.track_slot);
}

/// Step 2: tokens t0 .. t0 + count - 1.
template <class Traits>
__device__ void make_tokens(const KdaReplayCommitProblem& p, const CommitTask<Traits>& task, int t0,
                            int count, CommitToken<Traits>* tokens) {
  using Access = typename Traits::Access;
  using RingT = typename Traits::RingT;
  using Ring = StateQuad<RingT>;
  const int k_head = task.head / (p.HV / p.H);
  const std::int64_t k_offset = (std::int64_t{k_head} * p.L + t0) * kHeadDim;
  const std::int64_t v_offset = (std::int64_t{task.head} * p.L + t0) * kHeadDim;
  const RingT* const ring_k = static_cast<const RingT*>(p.ring_k) +
                              task.layer * p.ring_k_layer_stride +
                              task.ring_row * p.ring_k_row_stride + k_offset;
  const RingT* const ring_v = static_cast<const RingT*>(p.ring_v) +
                              task.layer * p.ring_v_layer_stride +
                              task.ring_row * p.ring_v_row_stride + v_offset + task.first_row();
  const std::int64_t g_offset = task.layer * p.ring_g_layer_stride +
                                task.ring_row * p.ring_g_row_stride + v_offset + 4 * task.lane;
  const float* const ring_beta = p.ring_beta + task.layer * p.ring_beta_layer_stride +
                                 task.ring_row * p.ring_beta_row_stride +
                                 std::int64_t{task.head} * p.L + t0;
  Gate gate = {1.0F, p.lower_bound, p.has_lower_bound};
  float4 bias = {0.0F, 0.0F, 0.0F, 0.0F};
  if (p.ring_g_dtype == DType::kBF16) {
    if (p.A_log != nullptr)
      gate.a = gate_scale(p.A_log + task.layer * p.A_log_layer_stride, task.head);
    if (p.dt_bias != nullptr)
      bias = Access::load(p.dt_bias + task.layer * p.dt_bias_layer_stride + task.head * kHeadDim +
                          4 * task.lane);
  }
  const auto log_decay = [&](int t) {
    const std::int64_t at = g_offset + t * kHeadDim;
    if (p.ring_g_dtype == DType::kF32)
      return Access::load(static_cast<const float*>(p.ring_g) + at);
    return map(widen(Access::load(static_cast<const bf16*>(p.ring_g) + at)) + bias, gate);
  };
  for (int t = task.warp; t < count; t += Traits::kWarps) {
    CommitToken<Traits>& token = tokens[t];
    const float4 k = Ring::widen(Access::load(ring_k + t * kHeadDim + 4 * task.lane));
    if (task.lane < Traits::kRows / 4)
      reinterpret_cast<float4*>(token.v)[task.lane] =
          Ring::widen(Access::load(ring_v + t * kHeadDim + 4 * task.lane));
    if (task.lane == 0) token.beta = ring_beta[t];
    token.decay.set(task.lane, decay_of(log_decay(t)));
    token.k.set(task.lane, p.qk_l2norm ? normalised_key(k) : k);
  }
}

template <class Traits>
__global__ __launch_bounds__(Traits::kNumThreads) void kda_replay_commit_kernel(
    const __grid_constant__ KdaReplayCommitProblem p) {
  using StateT = typename Traits::StateT;
  using Access = typename Traits::Access;
  constexpr int kBatches = Traits::kBatches;
  __shared__ CommitToken<Traits> tokens[Traits::kTokens];
  CommitTask<Traits> task;
  pdl_wait();
  if (!find_request(p, task)) return;

  const auto warp_rows = [&](std::int64_t slot) {
    return static_cast<StateT*>(p.state) + task.layer * p.state_layer_stride +
           slot * p.state_slot_stride + std::int64_t{task.head} * kHeadElements +
           (task.first_row() + task.warp * Traits::kWarpRows) * kHeadDim;
  };
  ChainRows<kBatches> h;
  load_chain<Access, kBatches>(static_cast<const StateT*>(warp_rows(task.slot)), task.lane, h);
  pdl_launch_dependents();
  if (p.conv_states != nullptr) roll_windows(p, task);

  for (int t0 = 0; t0 < task.length; t0 += Traits::kTokens) {
    const int count = min(Traits::kTokens, task.length - t0);
    make_tokens(p, task, t0, count, tokens);
    __syncthreads();
    for (int t = 0; t < count; ++t) {
      const CommitToken<Traits>& token = tokens[t];
      const ChainDots dots =
          decay_and_dot<false, kBatches>(h, token.decay, token.k, nullptr, task.lane);
      const int row = task.warp * Traits::kWarpRows + kChainBatch * (task.lane % kBatches) +
                      task.lane / kChainLanes;
      update_chain<StateT, kBatches>(h, token.k, (token.v[row] - dots.hk) * token.beta, task.lane);
      if (t0 + t == task.track_step)
        store_chain<Access, kBatches>(warp_rows(task.track_slot), task.lane, h);
    }
    __syncthreads();
  }
  store_chain<Access, kBatches>(warp_rows(task.slot), task.lane, h);
}

}  // namespace k3::cuda
