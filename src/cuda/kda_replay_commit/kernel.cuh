// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_replay_commit.h"
#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/kda/chain.cuh"

/// kda_replay_commit: the accepted tokens of a chain folded into the state, all layers in one grid.
///
/// One CTA of eight warps serves one (layer, request, head). The head's state passes through shared
/// memory in 16 pieces of eight rows; a warp owns two of them, one after the other.
///
///   1. One thread, of the last warp, asks for the pieces.
///   2. Tokens, as many as fit at a time: a warp takes one after the other, reads k, gate and v,
///      and leaves normalised k, decay, v and beta in shared memory. The upper half of the warps
///      copies the CTA's share of the request's windows first: most chains are short.
///   3. Each warp takes its pieces into registers (kda/chain.cuh), runs these tokens on them
///      without a barrier, and puts them back. A tracked slot is written from the registers.
///      Back to 2 while there are tokens.
///   4. After the last token a piece leaves by a bulk copy as soon as it is done.
/// Three CTAs fit on an SM by registers and by shared memory: 192 KB of state on its way there. 80
/// registers a thread hold the rows and a token only because the addresses of the state stand in
/// shared memory (docs/kda_decode.md has what spilling them cost).
///
/// Without kVector the rows come and go by the lanes' own accesses; they still rest in shared
/// memory between two batches of tokens.
///
/// Barriers:
///   __syncthreads   before each chain: the tokens stand there, `arrived` is armed; after it, if
///                   tokens follow: these have been read
///   arrived[i]      counts the bytes of piece i; its warp waits for it, once
namespace k3::cuda {

/// @tparam StateT_   float or bf16
/// @tparam RingT_    of ring_k and ring_v: bf16 or float
/// @tparam kVector_  bulk copies of the state, accesses of four elements; else one element each,
///                   for any alignment
template <class StateT_, class RingT_, bool kVector_>
struct CommitTraits {
  using Layout = ChainLayout<16, 4>;
  using StateT = StateT_;
  using RingT = RingT_;
  static constexpr bool kVector = kVector_;
  using Access = QuadAccess<kVector>;
  static constexpr int kWarps = 8;
  static constexpr int kNumThreads = 32 * kWarps;
  static constexpr int kWindowThreads = kNumThreads / 2;
  static constexpr int kPieceRows = Layout::kWarpRows;
  static constexpr int kPieces = kHeadDim / kPieceRows;
  static constexpr std::uint32_t kPieceBytes = kPieceRows * kHeadDim * sizeof(StateT);
  static constexpr int kMinCtas = 3;  ///< on an SM
  static_assert(kPieces % kWarps == 0);
};

template <class Traits>
struct CommitToken {
  ChainVector<typename Traits::Layout> k;
  ChainVector<typename Traits::Layout> decay;
  typename Traits::RingT v[kHeadDim];
  float beta;
};

/// Tokens made at a time: what is left of a CTA's part of an SM's 228 KB, of which the system takes
/// 1 KB a CTA. 8 with fp32 states and bf16 rings, 7 with fp32 rings, 16 with bf16 states.
template <class Traits>
constexpr int commit_batch() {
  constexpr std::size_t kShared = 228 * 1024 / Traits::kMinCtas - 1024;
  constexpr std::size_t kRest = kShared - kHeadElements * sizeof(typename Traits::StateT) -
                                2 * sizeof(void*) - Traits::kPieces * sizeof(ByteBarrier);
  return kRest / sizeof(CommitToken<Traits>) < 16
             ? static_cast<int>(kRest / sizeof(CommitToken<Traits>))
             : 16;
}

template <class Traits>
struct CommitShared {
  static constexpr int kBatch = commit_batch<Traits>();
  alignas(16) typename Traits::StateT rows[kHeadElements];
  CommitToken<Traits> tokens[kBatch];
  typename Traits::StateT* state;    ///< the head's
  typename Traits::StateT* tracked;  ///< the head's in the tracked slot, if any
  ByteBarrier arrived[Traits::kPieces];
};

/// One CTA's view of its request.
struct CommitTask {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int head = static_cast<int>(blockIdx.x);
  int n = static_cast<int>(blockIdx.y);
  int layer = static_cast<int>(blockIdx.z);
  int slot = 0;
  int ring_row = 0;
  int length = 0;       ///< A, tokens to take over
  int track_slot = -1;  ///< -1: none
  int track_step = -1;
};

/// Reads the index lists through `read`; false where the request changes nothing.
template <class Read>
__device__ bool find_request(const KdaReplayCommitProblem& p, CommitTask& task, const Read& read) {
  const auto at = [&](const IndexList& list) { return read(list.data + task.n * list.stride); };
  const auto is_live = [&](int slot) { return slot > p.null_index && slot < p.num_slots; };
  task.slot = at(p.state_indices);
  task.ring_row = p.ring_indices.data != nullptr ? at(p.ring_indices) : task.slot;
  task.length = min(at(p.accept_lens), p.L);
  if (p.track_indices.data != nullptr) {
    const int slot = at(p.track_indices);
    const int step = at(p.track_steps);
    if (is_live(slot) && step >= 0 && step < task.length) {
      task.track_slot = slot;
      task.track_step = step;
    }
  }
  return is_live(task.slot) && task.ring_row >= 0 && task.ring_row < p.num_ring_rows &&
         task.length > 0;
}

template <class Traits>
__device__ typename Traits::StateT* head_state(const KdaReplayCommitProblem& p,
                                               const CommitTask& task, int slot) {
  return static_cast<typename Traits::StateT*>(p.state) + task.layer * p.state_layer_stride +
         slot * p.state_slot_stride + std::int64_t{task.head} * kHeadElements;
}

/// Copies the window after token `step` to a slot: this CTA's share of its channels, by the upper
/// half of its threads.
template <class Traits>
__device__ void roll_window(const KdaReplayCommitProblem& p, const CommitTask& task,
                            std::int64_t scratch_row, int step, int slot) {
  using Access = typename Traits::Access;
  constexpr int kTaps = kKdaConvWidth - 1;
  const bf16* const from = p.conv_scratch + task.layer * p.scratch_layer_stride +
                           scratch_row * p.scratch_row_stride + step * p.scratch_token_stride;
  bf16* const to = p.conv_states + task.layer * p.conv_layer_stride + slot * p.conv_slot_stride;
  const int thread = static_cast<int>(threadIdx.x) - (Traits::kNumThreads - Traits::kWindowThreads);
  const int ctas = static_cast<int>(gridDim.x);
  const int quads = p.C / 4;
  const int share = (quads + ctas - 1) / ctas;
  const int end = min((task.head + 1) * share, quads);
  for (int quad = task.head * share + thread; quad < end; quad += Traits::kWindowThreads) {
    Bf16Quad taps[kTaps];
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
      taps[tap] = Access::load(from + tap * p.scratch_tap_stride + 4 * quad);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
      Access::store(to + tap * p.conv_tap_stride + 4 * quad, taps[tap]);
  }
  const int c = 4 * quads + thread;
  if (task.head == 0 && c < p.C)
    for (int tap = 0; tap < kTaps; ++tap)
      to[tap * p.conv_tap_stride + c] = from[tap * p.scratch_tap_stride + c];
}

template <class Traits>
__device__ void roll_windows(const KdaReplayCommitProblem& p, const CommitTask& task) {
  const std::int64_t row = p.scratch_indices.data != nullptr
                               ? p.scratch_indices.data[task.n * p.scratch_indices.stride]
                               : task.n;
  if (row < 0 || row >= p.num_scratch_rows || p.Ts <= 0) return;
  roll_window<Traits>(p, task, row, min(task.length, p.Ts) - 1, task.slot);
  if (task.track_slot >= 0)
    roll_window<Traits>(p, task, row, min(task.track_step, p.Ts - 1), task.track_slot);
}

/// For one thread: sixteen lanes or eight warps at once cost 2 us more at one request.
template <class Traits>
__device__ void ask_for_rows(const typename Traits::StateT* from, CommitShared<Traits>& shared) {
#pragma unroll 1
  for (int piece = 0; piece < Traits::kPieces; ++piece) {
    const int at = piece * Traits::kPieceRows * kHeadDim;
    arm(&shared.arrived[piece], Traits::kPieceBytes);
    bulk_load(shared.rows + at, from + at, Traits::kPieceBytes, &shared.arrived[piece]);
  }
}

/// A token as the rings hold it: four channels a lane.
template <class RingT>
struct RingToken {
  float4 k;
  float4 g;  ///< log decay, or raw gate
  typename StateQuad<RingT>::Type v;
  float beta;
};

/// A head's rings.
template <class Traits>
struct Rings {
  using RingT = typename Traits::RingT;
  const RingT* k;
  const RingT* v;
  const void* g;
  const float* beta;
  bool gate_is_raw;

  __device__ Rings(const KdaReplayCommitProblem& p, const CommitTask& task)
      : gate_is_raw(p.ring_g_dtype == DType::kBF16) {
    const std::int64_t head = std::int64_t{task.head} * p.L * kHeadDim + 4 * task.lane;
    const std::int64_t k_head =
        std::int64_t{task.head / (p.HV / p.H)} * p.L * kHeadDim + 4 * task.lane;
    k = static_cast<const RingT*>(p.ring_k) + task.layer * p.ring_k_layer_stride +
        task.ring_row * p.ring_k_row_stride + k_head;
    v = static_cast<const RingT*>(p.ring_v) + task.layer * p.ring_v_layer_stride +
        task.ring_row * p.ring_v_row_stride + head;
    const std::int64_t g_at =
        task.layer * p.ring_g_layer_stride + task.ring_row * p.ring_g_row_stride + head;
    if (gate_is_raw)
      g = static_cast<const bf16*>(p.ring_g) + g_at;
    else
      g = static_cast<const float*>(p.ring_g) + g_at;
    beta = p.ring_beta + task.layer * p.ring_beta_layer_stride +
           task.ring_row * p.ring_beta_row_stride + std::int64_t{task.head} * p.L;
  }

  __device__ void prefetch(int t) const {
    const int at = t * kHeadDim;
    prefetch_l2(k + at);
    prefetch_l2(v + at);
    if (gate_is_raw)
      prefetch_l2(static_cast<const bf16*>(g) + at);
    else
      prefetch_l2(static_cast<const float*>(g) + at);
    prefetch_l2(beta + t);
  }

  __device__ RingToken<RingT> load(int t) const {
    using Access = typename Traits::Access;
    const int at = t * kHeadDim;
    RingToken<RingT> token;
    token.k = StateQuad<RingT>::widen(Access::load(k + at));
    token.g = gate_is_raw ? widen(Access::load(static_cast<const bf16*>(g) + at))
                          : Access::load(static_cast<const float*>(g) + at);
    token.v = Access::load(v + at);
    token.beta = beta[t];
    return token;
  }
};

/// Before the previous grid ends: what the indices name at that time comes into the L2.
template <class Traits>
__device__ void prefetch_request(const KdaReplayCommitProblem& p, CommitTask task) {
  if (!find_request(p, task, load_guess)) return;
  if (task.warp < task.length) Rings<Traits>(p, task).prefetch(task.warp);
  if (threadIdx.x == 0)
    prefetch_l2(head_state<Traits>(p, task, task.slot), Traits::kPieces * Traits::kPieceBytes);
}

/// Makes `count` tokens from t0 on, a warp one after the other.
template <class Traits>
__device__ void make_tokens(const KdaReplayCommitProblem& p, const CommitTask& task, int t0,
                            int count, CommitToken<Traits>* tokens) {
  using RingT = typename Traits::RingT;
  if (task.warp >= count) return;
  const Rings<Traits> rings(p, task);
  Gate gate = {};
  float4 bias = {};
  if (rings.gate_is_raw) {
    const float* const A_log =
        p.A_log != nullptr ? p.A_log + task.layer * p.A_log_layer_stride : nullptr;
    gate = {gate_scale(A_log, task.head), p.lower_bound, p.has_lower_bound};
    if (p.dt_bias != nullptr)
      bias = Traits::Access::load(p.dt_bias + task.layer * p.dt_bias_layer_stride +
                                  task.head * kHeadDim + 4 * task.lane);
  }
  for (int t = task.warp; t < count; t += Traits::kWarps) {
    const RingToken<RingT> from = rings.load(t0 + t);
    CommitToken<Traits>& token = tokens[t];
    reinterpret_cast<typename StateQuad<RingT>::Type*>(token.v)[task.lane] = from.v;
    if (task.lane == 0) token.beta = from.beta;
    token.decay.set(task.lane, decay_of(rings.gate_is_raw ? map(from.g + bias, gate) : from.g));
    token.k.set(task.lane, p.qk_l2norm ? normalised_key(from.k) : from.k);
  }
}

/// @param guessing_ctas  so many may start before the previous grid ends, and prefetch
template <class Traits>
__global__ __launch_bounds__(Traits::kNumThreads, Traits::kMinCtas) void kda_replay_commit_kernel(
    const __grid_constant__ KdaReplayCommitProblem p, const unsigned guessing_ctas) {
  using StateT = typename Traits::StateT;
  using Access = typename Traits::Access;
  using Layout = typename Traits::Layout;
  extern __shared__ __align__(16) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<CommitShared<Traits>*>(dynamic_shared);
  constexpr int kBatch = CommitShared<Traits>::kBatch;
  constexpr int kPieceElements = Traits::kPieceRows * kHeadDim;
  CommitTask task;

  if constexpr (Traits::kVector)
    if ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x < guessing_ctas)
      prefetch_request<Traits>(p, task);
  pdl_wait();
  if (!find_request(p, task, [](const std::int32_t* at) { return *at; })) return;
  if (Traits::kVector && threadIdx.x == Traits::kNumThreads - 32)
    ask_for_rows<Traits>(head_state<Traits>(p, task, task.slot), shared);
  if (threadIdx.x == 0) {
    shared.state = head_state<Traits>(p, task, task.slot);
    shared.tracked = head_state<Traits>(p, task, max(task.track_slot, 0));
  }
  __syncwarp();
  pdl_launch_dependents();
  if (p.conv_states != nullptr && threadIdx.x >= Traits::kNumThreads - Traits::kWindowThreads)
    roll_windows<Traits>(p, task);

#pragma unroll 1
  for (int t0 = 0; t0 < task.length; t0 += kBatch) {
    const int count = min(kBatch, task.length - t0);
    const bool is_last = t0 + count == task.length;
    make_tokens<Traits>(p, task, t0, count, shared.tokens);
    __syncthreads();
    const int track_step = task.track_step - t0;
#pragma unroll 1
    for (int piece = task.warp; piece < Traits::kPieces; piece += Traits::kWarps) {
      const int first = piece * kPieceElements;
      StateT* const resting = shared.rows + first;
      ChainRows<Layout> h;
      if (t0 == 0 && !Traits::kVector) {
        load_chain<Layout, Access>(static_cast<const StateT*>(shared.state + first), task.lane, h);
      } else {
        if (t0 == 0) wait(&shared.arrived[piece]);
        load_chain<Layout, SharedQuadAccess>(static_cast<const StateT*>(resting), task.lane, h);
      }

      const int scalar_row = piece * Traits::kPieceRows + chain_scalar_row<Layout>(task.lane);
#pragma unroll 1
      for (int t = 0; t < count; ++t) {
        const CommitToken<Traits>& token = shared.tokens[t];
        const ChainDots dots =
            decay_and_dot<Layout, false>(h, token.decay, token.k, nullptr, task.lane);
        const float v = widen(token.v[scalar_row]);
        update_chain<Layout, StateT>(h, token.k, (v - dots.hk) * token.beta, task.lane);
        if (t == track_step) store_chain<Layout, Access>(shared.tracked + first, task.lane, h);
      }

      if (is_last && !Traits::kVector) {
        store_chain<Layout, Access>(shared.state + first, task.lane, h);
        continue;
      }
      store_chain<Layout, SharedQuadAccess>(resting, task.lane, h);
      if (!is_last) continue;
      publish_to_bulk_copies();
      __syncwarp();
      if (task.lane == 0) bulk_store(shared.state + first, resting, Traits::kPieceBytes);
    }
    if (!is_last) __syncthreads();
  }
  if (Traits::kVector && task.lane == 0) wait_until_bulk_stores_have_read();
}

}  // namespace k3::cuda
