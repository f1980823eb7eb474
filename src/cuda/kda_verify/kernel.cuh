// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_verify.h"
#include "cuda/common/cluster.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/kda/chain.cuh"
#include "cuda/kda_verify/traits.cuh"

/// kda_verify: a chain of up to 16 tokens from a state that stays as it is.
///
/// A cluster of Z = 128 / rows CTAs serves one (request, head). The state lives in registers over
/// the whole chain, as kda/chain.cuh lays it out.
///
///   1. Before the previous grid ends, what the CTA is likely to read is asked for.
///   2. The warps take tokens in turns and make all that the chain needs of one: q, k and v by
///      convolution, SiLU and norm; k.q; decay, beta; the output gate. They also leave its traces:
///      rings and windows. Every CTA of the cluster makes q, k and decay of all tokens, but v and
///      gate of its own rows only; rank 0 leaves what is not of a row.
///   3. The chain's warps take their rows of the state. Per token: decay, dots with k and q, u,
///      o = h.q + u (k.q), update. No barrier between tokens.
///   4. Output: a warp takes a token; sums of squares of o travel through the cluster, if any.
///
/// Barriers:
///   __syncthreads 1   the tokens stand in shared memory
///   __syncthreads 2   o of all tokens and rows of the CTA stands there
///   cluster A         every CTA has armed `squares_arrived`
///   squares_arrived   the sums of all CTAs have arrived, for all tokens
namespace k3::cuda {

/// What the chain needs of a token.
template <class Layout>
struct VerifyToken {
  ChainVector<Layout> q;
  ChainVector<Layout> k;
  ChainVector<Layout> decay;
  float beta;
  float qk;  ///< k . q
  float padding[2];
};

/// Followed in dynamic shared memory by, for each of max_query_len tokens: v, gate, o [rows].
template <class Layout>
struct VerifyShared {
  ByteBarrier squares_arrived;
  float squares[kKdaMaxVerifyTokens * 8];  ///< [token, rank]
  VerifyToken<Layout> tokens[1];           ///< max_query_len of them
};

template <class Traits>
std::size_t verify_shared_bytes(int max_query_len) {
  const auto T = static_cast<std::size_t>(max_query_len);
  using Layout = typename Traits::Layout;
  return sizeof(VerifyShared<Layout>) + (T - 1) * sizeof(VerifyToken<Layout>) +
         T * 3 * Traits::kRows * sizeof(float);
}

/// One CTA's view: its place, its request's tokens, where their traces go.
template <class Traits>
struct VerifyTask {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int rank = static_cast<int>(blockIdx.x) % Traits::kClusterSize;
  int head = static_cast<int>(blockIdx.x) / Traits::kClusterSize;
  int n = static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y);
  int begin = 0;   ///< first token
  int length = 0;  ///< tokens
  std::int64_t slot = 0;
  std::int64_t ring_row = -1;     ///< -1: none
  std::int64_t scratch_row = -1;  ///< -1: none
  VerifyShared<typename Traits::Layout>* shared = nullptr;
  float* v = nullptr;     ///< [T, rows]
  float* gate = nullptr;  ///< [T, rows], sigmoid(onorm_gate) * onorm_weight
  float* o = nullptr;     ///< [T, rows]

  __device__ int first_row() const { return rank * Traits::kRows; }
};

/// Reads the index lists; false where there is nothing to do but perhaps zeros to write.
template <class Traits>
__device__ bool find_request(const KdaVerifyProblem& p, VerifyTask<Traits>& task) {
  const auto at = [](const IndexList& list, int n) { return list.data[n * list.stride]; };
  task.begin = min(max(at(p.query_start_loc, task.n), 0), p.tokens);
  const int end = min(max(at(p.query_start_loc, task.n + 1), task.begin), p.tokens);
  task.length = min(end - task.begin, p.max_query_len);
  task.slot = at(p.state_indices, task.n);
  const std::int64_t ring = p.ring_indices.data != nullptr ? at(p.ring_indices, task.n) : task.slot;
  if (p.has_rings && ring >= 0 && ring < p.ring_rows) task.ring_row = ring;
  task.scratch_row = p.scratch_indices.data != nullptr ? at(p.scratch_indices, task.n) : task.n;
  return task.slot > p.null_index && task.slot < p.num_slots;
}

/// A head's state in a slot.
template <class Traits>
__device__ const typename Traits::StateT* head_state(const KdaVerifyProblem& p,
                                                     const VerifyTask<Traits>& task,
                                                     std::int64_t slot) {
  return static_cast<const typename Traits::StateT*>(p.state) + slot * p.state_slot_stride +
         std::int64_t{task.head} * kHeadElements;
}

template <class Traits>
__device__ void prefetch_rows(const KdaVerifyProblem& p, const VerifyTask<Traits>& task,
                              std::int64_t slot) {
  prefetch_l2(head_state<Traits>(p, task, slot) + task.first_row() * kHeadDim,
              Traits::kRows * kHeadDim * sizeof(typename Traits::StateT));
}

/// The four channels of one part (0 q, 1 k, 2 v) of a head that a lane convolves, over the tokens.
template <class Traits>
struct VerifyChannels {
  using Access = typename Traits::Access;
  const bf16* raw;      ///< of the request's first token
  const bf16* window;   ///< tap 0
  bf16* scratch;        ///< of token 0, or null
  bf16* ring;           ///< of token 0, or null
  const float* weight;  ///< of tap 0
  const float* bias;    ///< or null

  __device__ VerifyChannels(const KdaVerifyProblem& p, const VerifyTask<Traits>& task, int part,
                            int quad, bool leaves_traces) {
    const int channel = (part * p.H + task.head) * kHeadDim + 4 * quad;
    raw = p.mixed_qkv + task.begin * p.mixed_qkv_stride + channel;
    window = p.conv_states + task.slot * p.conv_slot_stride + channel;
    const bool has_scratch =
        leaves_traces && task.scratch_row >= 0 && task.scratch_row < p.conv_scratch_rows;
    scratch = has_scratch ? p.conv_scratch + task.scratch_row * p.conv_scratch_row_stride + channel
                          : nullptr;
    ring = nullptr;
    if (leaves_traces && task.ring_row >= 0 && part != 0)
      ring = (part == 1 ? p.ring_k + task.ring_row * p.ring_k_row_stride
                        : p.ring_v + task.ring_row * p.ring_v_row_stride) +
             std::int64_t{task.head} * p.ring_len * kHeadDim + 4 * quad;
    weight = p.conv_weight + channel;
    bias = p.conv_bias != nullptr ? p.conv_bias + channel : nullptr;
  }

  /// The window up to token t, which reaches back into the slot's.
  __device__ ConvQuad load(const KdaVerifyProblem& p, int t) const {
    ConvQuad x;
#pragma unroll
    for (int tap = 0; tap < kKdaConvWidth; ++tap) {
      const int at = t - (kKdaConvWidth - 1) + tap;
      x.tap[tap] = Access::load(at < 0 ? window + (at + kKdaConvWidth - 1) * p.conv_tap_stride
                                       : raw + at * p.mixed_qkv_stride);
    }
    return x;
  }

  /// Convolution, SiLU and traces of token t.
  __device__ float4 make(const KdaVerifyProblem& p, int t, const ConvQuad& x) const {
    const float4 y =
        conv_silu(load_conv_weights<Access>(weight, p.conv_weight_stride, bias), x, p.round_conv);
    if (ring != nullptr) Access::store(ring + t * kHeadDim, narrow(y));
    if (scratch != nullptr) {
      // Where taps and tokens share their stride, a window's first taps stand there already.
      const bool all_taps = t == 0 || p.conv_scratch_token_stride != p.conv_scratch_tap_stride;
      bf16* const to = scratch + t * p.conv_scratch_token_stride;
      if (all_taps) {
        Access::store(to, x.tap[1]);
        Access::store(to + p.conv_scratch_tap_stride, x.tap[2]);
      }
      Access::store(to + 2 * p.conv_scratch_tap_stride, x.tap[3]);
    }
    return y;
  }
};

/// Decay and beta of token t into shared memory, and their traces.
template <class Traits>
__device__ void make_decay(const KdaVerifyProblem& p, const VerifyTask<Traits>& task, int t,
                           const Gate& gate, Bf16Quad g, float4 bias, float beta_logit) {
  using Access = typename Traits::Access;
  auto& token = task.shared->tokens[t];
  const float4 log_decay = map(widen(g) + bias, gate);
  token.decay.set(task.lane, decay_of(log_decay));
  const float beta = sigmoid(beta_logit);
  if (task.lane == 0) token.beta = beta;
  if (task.rank != 0 || task.ring_row < 0) return;
  const std::int64_t at = task.ring_row * p.ring_g_row_stride +
                          (std::int64_t{task.head} * p.ring_len + t) * kHeadDim + 4 * task.lane;
  if (p.ring_g_dtype == DType::kF32)
    Access::store(static_cast<float*>(p.ring_g) + at, log_decay);
  else
    Access::store(static_cast<bf16*>(p.ring_g) + at, g);
  if (task.lane == 0)
    p.ring_beta[task.ring_row * p.ring_beta_row_stride + task.head * p.ring_beta_head_stride +
                t * p.ring_beta_token_stride] = beta;
}

/// Step 2. A token's own loads come before any arithmetic.
template <class Traits>
__device__ void make_tokens(const KdaVerifyProblem& p, const VerifyTask<Traits>& task) {
  using Access = typename Traits::Access;
  if (task.warp >= task.length) return;
  const bool has_row = task.lane < Traits::kRows / 4;  // of v and gate
  const int row_quad = task.first_row() / 4 + task.lane % (Traits::kRows / 4);
  const int channel = task.head * kHeadDim + 4 * task.lane;
  const int row = task.head * kHeadDim + 4 * row_quad;
  const VerifyChannels<Traits> q_channels(p, task, 0, task.lane, task.rank == 0);
  const VerifyChannels<Traits> k_channels(p, task, 1, task.lane, task.rank == 0);
  const VerifyChannels<Traits> v_channels(p, task, 2, row_quad, has_row);
  const Gate gate = {gate_scale(p.A_log, task.head), p.lower_bound, p.has_lower_bound};
  const float4 bias =
      p.dt_bias != nullptr ? Access::load(p.dt_bias + channel) : float4{0.0F, 0.0F, 0.0F, 0.0F};
  const bool has_norm = p.onorm_gate != nullptr;
  float4 onorm_weight = {};
  if (has_norm) onorm_weight = Access::load(p.onorm_weight + 4 * row_quad);

  for (int t = task.warp; t < task.length; t += Traits::kWarps) {
    const std::int64_t token_row = task.begin + t;
    const ConvQuad qx = q_channels.load(p, t);
    const ConvQuad kx = k_channels.load(p, t);
    const ConvQuad vx = v_channels.load(p, t);
    const Bf16Quad g = Access::load(p.g + token_row * p.g_stride + channel);
    const float beta_logit = widen(p.beta[token_row * p.beta_stride + task.head]);
    Bf16Quad onorm_logits = {};
    if (has_norm) onorm_logits = Access::load(p.onorm_gate + token_row * p.onorm_gate_stride + row);

    auto& token = task.shared->tokens[t];
    const float4 q = normalised_query(q_channels.make(p, t, qx), p.scale);
    const float4 k = normalised_key(k_channels.make(p, t, kx));
    token.q.set(task.lane, q);
    token.k.set(task.lane, k);
    const float qk = t128_all_lanes<32>(t128_group(k, q));
    if (task.lane == 0) token.qk = qk;
    make_decay(p, task, t, gate, g, bias, beta_logit);
    const float4 v = v_channels.make(p, t, vx);
    if (!has_row) continue;
    reinterpret_cast<float4*>(task.v + t * Traits::kRows)[task.lane] = v;
    if (has_norm)
      reinterpret_cast<float4*>(task.gate + t * Traits::kRows)[task.lane] =
          map(widen(onorm_logits), sigmoid) * onorm_weight;
  }
}

/// Step 1. Index values may still change before the wait: a wrong guess costs a little bandwidth.
template <class Traits>
__device__ void prefetch_all(const KdaVerifyProblem& p, const VerifyTask<Traits>& task) {
  const auto guess = [&](const IndexList& list, int n) {
    return load_guess(list.data + n * list.stride);
  };
  const int quad = 4 * task.lane;
  for (int i = task.warp; i < 3 * kKdaConvWidth; i += Traits::kWarps)
    prefetch_l2(p.conv_weight + i % kKdaConvWidth * p.conv_weight_stride +
                (i / kKdaConvWidth * p.H + task.head) * kHeadDim + quad);
  const std::int64_t slot = guess(p.state_indices, task.n);
  if (slot > p.null_index && slot < p.num_slots) {
    if (Traits::kVector && threadIdx.x == 0) prefetch_rows(p, task, slot);
    for (int i = task.warp; i < 9; i += Traits::kWarps)
      prefetch_l2(p.conv_states + slot * p.conv_slot_stride + i % 3 * p.conv_tap_stride +
                  (i / 3 * p.H + task.head) * kHeadDim + quad);
  }
  const int begin = guess(p.query_start_loc, task.n);
  for (int t = task.warp; t < p.max_query_len; t += Traits::kWarps) {
    const std::int64_t row = begin + t;
    if (begin < 0 || row >= p.tokens) return;
    const int channel = task.head * kHeadDim + quad;
    for (int part = 0; part < 3; ++part)
      prefetch_l2(p.mixed_qkv + row * p.mixed_qkv_stride + part * p.H * kHeadDim + channel);
    prefetch_l2(p.g + row * p.g_stride + channel);
    if (p.onorm_gate != nullptr) prefetch_l2(p.onorm_gate + row * p.onorm_gate_stride + channel);
  }
}

/// Offset of the warp's first row in a head of a state.
template <class Traits>
__device__ int first_row_offset(const VerifyTask<Traits>& task) {
  return (task.first_row() + task.warp * Traits::Layout::kWarpRows) * kHeadDim;
}

/// Step 3.
template <class Traits>
__device__ void run_chain(const KdaVerifyProblem& p, const VerifyTask<Traits>& task,
                          ChainRows<typename Traits::Layout>& h) {
  using StateT = typename Traits::StateT;
  using Layout = typename Traits::Layout;
  StateT* snapshot = nullptr;
  if (p.snapshots != nullptr && task.scratch_row >= 0 && task.scratch_row < p.snapshot_rows)
    snapshot = static_cast<StateT*>(p.snapshots) + task.scratch_row * p.snapshot_row_stride +
               std::int64_t{task.head} * kHeadElements + first_row_offset(task);
  const int first = task.warp * Layout::kWarpRows + chain_scalar_row<Layout>(task.lane);
  for (int t = 0; t < task.length; ++t) {
    const auto& token = task.shared->tokens[t];
    const ChainDots dots =
        decay_and_dot<Layout, true>(h, token.decay, token.k, &token.q, task.lane);
    const int row = first + t * Traits::kRows;
    const float u = (task.v[row] - dots.hk) * token.beta;
    if (task.lane % Layout::kLanes < Layout::kBatches) task.o[row] = fmaf(u, token.qk, dots.hq);
    if (t + 1 == task.length && snapshot == nullptr) break;
    update_chain<Layout, StateT>(h, token.k, u, task.lane);
    if (snapshot != nullptr)
      store_chain<Layout, typename Traits::Access>(snapshot + t * p.snapshot_token_stride,
                                                   task.lane, h);
  }
}

/// Step 4.
template <class Traits>
__device__ void write_outputs(const KdaVerifyProblem& p, const VerifyTask<Traits>& task) {
  constexpr int kGroups = Traits::kRows / 4;  ///< of o, in the CTA
  constexpr int kZ = Traits::kClusterSize;
  const bool has_group = task.lane < kGroups;
  const auto load_o = [&](int t) {
    const float4 o =
        reinterpret_cast<const float4*>(task.o + t * Traits::kRows)[task.lane % kGroups];
    return p.round_o == Rounding::kBF16 ? round_to_bf16(o) : o;
  };
  const auto sum_in_cta = [&](float4 o) { return t128_all_lanes<kGroups>(t128_group(o, o)); };
  const bool has_norm = p.onorm_gate != nullptr;
  if constexpr (kZ > 1) {
    cluster_wait();
    if (has_norm) {
      for (int t = task.warp; t < p.max_query_len; t += Traits::kWarps) {
        const float sum = t < task.length ? sum_in_cta(load_o(t)) : 0.0F;
        if (task.lane < kZ)
          send(&task.shared->squares[t * kZ + task.rank], &task.shared->squares_arrived, task.lane,
               sum);
      }
      wait(&task.shared->squares_arrived);
    }
  }
  for (int t = task.warp; t < task.length; t += Traits::kWarps) {
    float4 o = load_o(t);
    if (has_norm) {
      float sum = 0.0F;
      if constexpr (kZ > 1)
        sum = t128_all_lanes<kZ>(task.shared->squares[t * kZ + task.lane % kZ]);
      else
        sum = sum_in_cta(o);
      const float4 gate =
          reinterpret_cast<const float4*>(task.gate + t * Traits::kRows)[task.lane % kGroups];
      o = (o * inverse_rms(sum, p.eps_o)) * gate;
    }
    if (has_group)
      Traits::Access::store(p.out + (task.begin + t) * p.out_stride + task.head * kHeadDim +
                                task.first_row() + 4 * task.lane,
                            narrow(o));
  }
}

template <class Traits>
__device__ void write_zeros(const KdaVerifyProblem& p, const VerifyTask<Traits>& task) {
  for (int i = threadIdx.x; i < task.length * Traits::kRows; i += Traits::kNumThreads)
    p.out[(task.begin + i / Traits::kRows) * p.out_stride + task.head * kHeadDim +
          task.first_row() + i % Traits::kRows] = bf16{};
}

template <class Traits>
__global__ __launch_bounds__(Traits::kNumThreads, Traits::kMinCtas) void kda_verify_kernel(
    const __grid_constant__ KdaVerifyProblem p, bool guess_request) {
  extern __shared__ __align__(16) std::byte dynamic_shared[];
  VerifyTask<Traits> task;
  if (task.n >= p.N) return;
  task.shared = reinterpret_cast<VerifyShared<typename Traits::Layout>*>(dynamic_shared);
  task.v = reinterpret_cast<float*>(task.shared->tokens + p.max_query_len);
  task.gate = task.v + p.max_query_len * Traits::kRows;
  task.o = task.gate + p.max_query_len * Traits::kRows;
  if constexpr (Traits::kClusterSize > 1) {
    if (threadIdx.x == 0)
      arm(&task.shared->squares_arrived,
          static_cast<std::uint32_t>(p.max_query_len) * Traits::kClusterSize * sizeof(float));
  }
  if (guess_request) prefetch_all(p, task);
  pdl_wait();

  if (!find_request(p, task)) {
    write_zeros(p, task);
    return;
  }
  pdl_launch_dependents();
  const bool in_chain = task.warp < Traits::kChainWarps;
  ChainRows<typename Traits::Layout> h;
  const auto load_rows = [&] {
    if (in_chain)
      load_chain<typename Traits::Layout, typename Traits::Access>(
          head_state<Traits>(p, task, task.slot) + first_row_offset(task), task.lane, h);
  };
  if constexpr (Traits::kLoadsEarly) {
    load_rows();
    make_tokens(p, task);
  } else {
    if (Traits::kVector && threadIdx.x == 0) prefetch_rows(p, task, task.slot);
    make_tokens(p, task);
    load_rows();
  }
  __syncthreads();
  if constexpr (Traits::kClusterSize > 1) cluster_arrive_relaxed();
  if (in_chain) run_chain<Traits>(p, task, h);
  __syncthreads();
  write_outputs(p, task);
}

}  // namespace k3::cuda
