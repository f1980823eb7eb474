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
///   1. The chain's warps ask for their rows of the state.
///   2. All warps make the tokens, by role (warp % 4); the warps of a role share its tokens in
///   runs.
///        0  q: convolution, SiLU, norm, scale; window to conv_scratch
///        1  k: the same without scale; ring_k
///        2  decay, beta; ring_g, ring_beta
///        3  v and output gate of the CTA's rows; ring_v; window to conv_scratch
///      Every CTA of the cluster makes q, k and decay; rank 0 alone writes what they leave behind.
///   3. Chain: per token decay, dots with k and q, u, o = h.q + u (k.q), update. No barrier.
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
  float padding[3];
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

/// Step 2 for the channels of one role with a convolution: tokens [t_begin, t_end).
template <class Traits>
__device__ void make_channels(const KdaVerifyProblem& p, const VerifyTask<Traits>& task, int role,
                              int t_begin, int t_end) {
  using Access = typename Traits::Access;
  const bool is_v = role == 2;
  if (is_v && task.lane >= Traits::kRows / 4) return;
  const int quad = is_v ? task.first_row() / 4 + task.lane : task.lane;
  const int channel = (role * p.H + task.head) * kHeadDim + 4 * quad;
  const bf16* const raw = p.mixed_qkv + task.begin * p.mixed_qkv_stride + channel;
  const bf16* const window = p.conv_states + task.slot * p.conv_slot_stride + channel;
  const bool leaves_traces = is_v || task.rank == 0;
  const bool has_ring = leaves_traces && task.ring_row >= 0 && role != 0;
  const bool has_scratch =
      leaves_traces && task.scratch_row >= 0 && task.scratch_row < p.conv_scratch_rows;
  bf16* const ring = has_ring ? (is_v ? p.ring_v + task.ring_row * p.ring_v_row_stride
                                      : p.ring_k + task.ring_row * p.ring_k_row_stride) +
                                    std::int64_t{task.head} * p.ring_len * kHeadDim + 4 * quad
                              : nullptr;
  bf16* const scratch =
      has_scratch ? p.conv_scratch + task.scratch_row * p.conv_scratch_row_stride + channel
                  : nullptr;
  const bool taps_shared = p.conv_scratch_token_stride == p.conv_scratch_tap_stride;

  const ConvWeightQuad weights =
      load_conv_weights<Access>(p.conv_weight + channel, p.conv_weight_stride,
                                p.conv_bias != nullptr ? p.conv_bias + channel : nullptr);
  const auto input = [&](int t) {
    return t < 0 ? Access::load(window + (t + kKdaConvWidth - 1) * p.conv_tap_stride)
                 : Access::load(raw + t * p.mixed_qkv_stride);
  };
  ConvQuad x;
#pragma unroll
  for (int tap = 1; tap < kKdaConvWidth; ++tap) x.tap[tap] = input(t_begin - kKdaConvWidth + tap);
  Bf16Quad next = input(t_begin);
  for (int t = t_begin; t < t_end; ++t) {
#pragma unroll
    for (int tap = 0; tap < kKdaConvWidth - 1; ++tap) x.tap[tap] = x.tap[tap + 1];
    x.tap[kKdaConvWidth - 1] = next;
    if (t + 1 < t_end) next = input(t + 1);
    const float4 y = conv_silu(weights, x, p.round_conv);
    auto& token = task.shared->tokens[t];
    if (role == 0)
      token.q.set(quad, normalised_query(y, p.scale));
    else if (role == 1)
      token.k.set(quad, normalised_key(y));
    else
      reinterpret_cast<float4*>(task.v + t * Traits::kRows)[task.lane] = y;
    if (ring != nullptr) Access::store(ring + t * kHeadDim, narrow(y));
    if (scratch == nullptr) continue;
    bf16* const to = scratch + t * p.conv_scratch_token_stride;
#pragma unroll
    for (int tap = 0; tap < kKdaConvWidth - 1; ++tap)
      if (tap == kKdaConvWidth - 2 || t == 0 || !taps_shared)
        Access::store(to + tap * p.conv_scratch_tap_stride, x.tap[tap + 1]);
  }
}

/// Step 2, role 2.
template <class Traits>
__device__ void make_decays(const KdaVerifyProblem& p, const VerifyTask<Traits>& task, int t_begin,
                            int t_end) {
  using Access = typename Traits::Access;
  const int channel = task.head * kHeadDim + 4 * task.lane;
  const Gate gate = {gate_scale(p.A_log, task.head), p.lower_bound, p.has_lower_bound};
  const float4 bias =
      p.dt_bias != nullptr ? Access::load(p.dt_bias + channel) : float4{0.0F, 0.0F, 0.0F, 0.0F};
  const bool has_ring = task.rank == 0 && task.ring_row >= 0;
  const std::int64_t ring = task.ring_row * p.ring_g_row_stride +
                            std::int64_t{task.head} * p.ring_len * kHeadDim + 4 * task.lane;
  for (int t = t_begin; t < t_end; ++t) {
    const std::int64_t row = task.begin + t;
    const Bf16Quad g = Access::load(p.g + row * p.g_stride + channel);
    const float beta = sigmoid(widen(p.beta[row * p.beta_stride + task.head]));
    const float4 log_decay = map(widen(g) + bias, gate);
    auto& token = task.shared->tokens[t];
    token.decay.set(task.lane, decay_of(log_decay));
    if (task.lane == 0) token.beta = beta;
    if (!has_ring) continue;
    if (p.ring_g_dtype == DType::kF32)
      Access::store(static_cast<float*>(p.ring_g) + ring + t * kHeadDim, log_decay);
    else
      Access::store(static_cast<bf16*>(p.ring_g) + ring + t * kHeadDim, g);
    if (task.lane == 0)
      p.ring_beta[task.ring_row * p.ring_beta_row_stride + task.head * p.ring_beta_head_stride +
                  t * p.ring_beta_token_stride] = beta;
  }
}

/// Step 2, output gate of the CTA's rows.
template <class Traits>
__device__ void make_gates(const KdaVerifyProblem& p, const VerifyTask<Traits>& task, int t_begin,
                           int t_end) {
  using Access = typename Traits::Access;
  if (p.onorm_gate == nullptr || task.lane >= Traits::kRows / 4) return;
  const int row = task.first_row() + 4 * task.lane;
  const float4 weight = Access::load(p.onorm_weight + row);
  const bf16* const logits =
      p.onorm_gate + task.begin * p.onorm_gate_stride + task.head * kHeadDim + row;
  for (int t = t_begin; t < t_end; ++t)
    reinterpret_cast<float4*>(task.gate + t * Traits::kRows)[task.lane] =
        map(widen(Access::load(logits + t * p.onorm_gate_stride)), sigmoid) * weight;
}

template <class Traits>
__device__ void make_tokens(const KdaVerifyProblem& p, const VerifyTask<Traits>& task) {
  const int run = (task.length + Traits::kTokenRuns - 1) / Traits::kTokenRuns;
  const int t_begin = task.warp / 4 * run;
  const int t_end = min(t_begin + run, task.length);
  if (t_begin >= t_end) return;
  switch (task.warp % 4) {
    case 0:
      make_channels(p, task, 0, t_begin, t_end);
      break;
    case 1:
      make_channels(p, task, 1, t_begin, t_end);
      break;
    case 2:
      make_decays(p, task, t_begin, t_end);
      break;
    default:
      make_channels(p, task, 2, t_begin, t_end);
      make_gates(p, task, t_begin, t_end);
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
    if (task.lane % Layout::kLanes < Layout::kBatches) task.o[row] = fmaf(u, dots.qk, dots.hq);
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
__global__ __launch_bounds__(Traits::kNumThreads) void kda_verify_kernel(
    const __grid_constant__ KdaVerifyProblem p) {
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
  pdl_wait();

  if (!find_request(p, task)) {
    write_zeros(p, task);
    return;
  }
  const bool in_chain = task.warp < Traits::kChainWarps;
  ChainRows<typename Traits::Layout> h;
  if (in_chain)
    load_chain<typename Traits::Layout, typename Traits::Access>(
        static_cast<const typename Traits::StateT*>(p.state) + task.slot * p.state_slot_stride +
            std::int64_t{task.head} * kHeadElements + first_row_offset(task),
        task.lane, h);
  pdl_launch_dependents();
  make_tokens(p, task);
  __syncthreads();
  if constexpr (Traits::kClusterSize > 1) cluster_arrive_relaxed();
  if (in_chain) run_chain<Traits>(p, task, h);
  __syncthreads();
  write_outputs(p, task);
}

}  // namespace k3::cuda
