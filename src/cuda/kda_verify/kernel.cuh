// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/pdl.cuh"
#include "cuda/kda_verify/tokens.cuh"

/// kda_verify: a chain of up to 16 tokens from a state that stays as it is.
///
/// A cluster of Z = 128 / rows CTAs serves one (request, head) after the other, most of them only
/// one. The state lives in registers over the whole chain, as kda/chain.cuh lays it out.
///
/// Warps:
///   chain   rows / (4 batches) warps, each with its rows. Per token: decay, dots with k and q, u,
///           o = h.q + u (k.q), update. No barrier between them inside the chain. Then the output
///           norm: a warp takes a token; sums of squares of o travel through the cluster, if any.
///   makers  four for each group (kda_verify/tokens.cuh): find the request, make its tokens, a
///           stage ahead of the chain where there are two stages.
///
/// Shared memory: for each stage a request, and of each of its tokens q, k, decay, beta, k.q, v
/// (o takes its place) and gate; for each warp of the chain room to bring its rows into its layout.
///
/// Barriers (of a stage, once a request; every lane arrives for itself):
///   request_known   the request stands in shared memory: rows can be asked for
///   query_made      one a token: its q stands there, for k . q
///   token_made      one a token: all of it stands there
///   named 1         the chain's warps: o of all tokens and rows of the CTA stands there
///   stage_free      the chain's warps have written their outputs
///   cluster         every CTA has armed `squares_arrived`
///   squares_arrived the sums of all CTAs have arrived, for all tokens
namespace k3::cuda {

/// Offset of the warp's first row in a head of a state.
template <class Traits>
__device__ int first_row_offset(const VerifyTask<Traits>& task) {
  return (task.first_row() + task.warp * Traits::Layout::kWarpRows) * kHeadDim;
}

template <class Traits>
__device__ void run_chain(const KdaVerifyProblem& p, const VerifyTask<Traits>& task,
                          const VerifyRequest& request, ChainRows<typename Traits::Layout>& h) {
  using StateT = typename Traits::StateT;
  using Layout = typename Traits::Layout;
  StateT* snapshot = nullptr;
  if (p.snapshots != nullptr && request.scratch_row >= 0 && request.scratch_row < p.snapshot_rows)
    snapshot = static_cast<StateT*>(p.snapshots) + request.scratch_row * p.snapshot_row_stride +
               std::int64_t{task.head} * kHeadElements + first_row_offset(task);
  const int row = task.warp * Layout::kWarpRows + chain_scalar_row<Layout>(task.lane);
  for (int t = 0; t < request.length; ++t) {
    mbarrier_wait(&task.shared->token_made[task.stage][t], task.parity);
    const auto& token = task.token(t);
    const ChainDots dots =
        decay_and_dot<Layout, true>(h, token.decay, token.k, &token.q, task.lane);
    float* const v = task.v(t) + row;
    const float u = (*v - dots.hk) * token.beta;
    __syncwarp();  // every lane of the row has read it
    if (task.lane % Layout::kLanes < Layout::kBatches) *v = fmaf(u, token.qk, dots.hq);
    if (t + 1 == request.length && snapshot == nullptr) break;
    update_chain<Layout, StateT>(h, token.k, u, task.lane);
    if (snapshot != nullptr)
      store_chain<Layout, typename Traits::Access>(snapshot + t * p.snapshot_token_stride,
                                                   task.lane, h);
  }
}

template <class Traits>
__device__ void write_outputs(const KdaVerifyProblem& p, const VerifyTask<Traits>& task,
                              const VerifyRequest& request) {
  constexpr int kGroups = Traits::kRows / 4;  ///< of o, in the CTA
  constexpr int kZ = Traits::kClusterSize;
  const bool has_group = task.lane < kGroups;
  const auto load_o = [&](int t) {
    const float4 o = reinterpret_cast<const float4*>(task.v(t))[task.lane % kGroups];
    return p.round_o == Rounding::kBF16 ? round_to_bf16(o) : o;
  };
  const auto sum_in_cta = [&](float4 o) { return warp::sum<kGroups>(t128_group(o, o)); };
  const bool has_norm = p.onorm_gate != nullptr;
  if constexpr (kZ > 1) {
    if (has_norm) {
      for (int t = task.warp; t < p.max_query_len; t += Traits::kChainWarps) {
        const float sum = t < request.length ? sum_in_cta(load_o(t)) : 0.0F;
        if (task.lane < kZ)
          send(&task.shared->squares[t * kZ + task.rank], &task.shared->squares_arrived, task.lane,
               sum);
      }
      wait(&task.shared->squares_arrived);
    }
  }
  for (int t = task.warp; t < request.length; t += Traits::kChainWarps) {
    float4 o = load_o(t);
    if (has_norm) {
      float sum = 0.0F;
      if constexpr (kZ > 1)
        sum = warp::sum<kZ>(task.shared->squares[t * kZ + task.lane % kZ]);
      else
        sum = sum_in_cta(o);
      const float4 gate = reinterpret_cast<const float4*>(task.gate(t))[task.lane % kGroups];
      o = (o * inverse_rms(sum, p.eps_o)) * gate;
    }
    if (has_group)
      Traits::Access::store(p.out + (request.begin + t) * p.out_stride + task.head * kHeadDim +
                                task.first_row() + 4 * task.lane,
                            narrow(o));
  }
}

template <class Traits>
__device__ void write_zeros(const KdaVerifyProblem& p, const VerifyTask<Traits>& task,
                            const VerifyRequest& request) {
  const int thread = 32 * task.warp + task.lane;
  for (int i = thread; i < request.length * Traits::kRows; i += 32 * Traits::kChainWarps)
    p.out[(request.begin + i / Traits::kRows) * p.out_stride + task.head * kHeadDim +
          task.first_row() + i % Traits::kRows] = bf16{};
}

/// The chain's warps.
template <class Traits>
__device__ void run_chains(const KdaVerifyProblem& p, VerifyTask<Traits> task, int step_n,
                           int step_head) {
  using Layout = typename Traits::Layout;
  for (; task.n < p.N; task.advance(p, step_n, step_head)) {
    mbarrier_wait(&task.shared->request_known[task.stage], task.parity);
    const VerifyRequest request = task.shared->requests[task.stage];
    if (request.is_live) {
      ChainRows<Layout> h;
      load_chain_by_rows<Layout, typename Traits::Access>(
          head_state<Traits>(p, request.slot, task.head) + first_row_offset(task), task.lane,
          task.shared->exchange[task.warp], h);
      run_chain(p, task, request, h);
      named_barrier_sync(1, 32 * Traits::kChainWarps);
      if constexpr (Traits::kClusterSize > 1) cluster_wait();
      write_outputs(p, task, request);
    } else {
      if constexpr (Traits::kClusterSize > 1) cluster_wait();
      write_zeros(p, task, request);
    }
    mbarrier_arrive(&task.shared->stage_free[task.stage]);
  }
}

/// Before the previous grid has ended. Index values may still change: a wrong guess costs a little
/// bandwidth.
template <class Traits>
__device__ void prefetch_all(const KdaVerifyProblem& p, const VerifyTask<Traits>& task) {
  constexpr int kWarps = Traits::kNumThreads / 32;
  const auto guess = [&](const IndexList& list, int n) {
    return load_guess(list.data + n * list.stride);
  };
  const int quad = 4 * task.lane;
  for (int i = task.warp; i < 3 * kKdaConvWidth; i += kWarps)
    prefetch_l2(p.conv_weight + i % kKdaConvWidth * p.conv_weight_stride +
                (i / kKdaConvWidth * p.H + task.head) * kHeadDim + quad);
  const std::int64_t slot = guess(p.state_indices, task.n);
  if (slot > p.null_index && slot < p.num_slots) {
    if (threadIdx.x == 0) prefetch_rows(p, task, slot);
    for (int i = task.warp; i < 9; i += kWarps)
      prefetch_l2(p.conv_states + slot * p.conv_slot_stride + i % 3 * p.conv_tap_stride +
                  (i / 3 * p.H + task.head) * kHeadDim + quad);
  }
  const int begin = guess(p.query_start_loc, task.n);
  for (int t = task.warp; t < p.max_query_len; t += kWarps) {
    const std::int64_t row = begin + t;
    if (begin < 0 || row >= p.tokens) return;
    const int channel = task.head * kHeadDim + quad;
    for (int part = 0; part < 3; ++part)
      prefetch_l2(p.mixed_qkv + row * p.mixed_qkv_stride + part * p.H * kHeadDim + channel);
    prefetch_l2(p.g + row * p.g_stride + channel);
    if (p.onorm_gate != nullptr) prefetch_l2(p.onorm_gate + row * p.onorm_gate_stride + channel);
  }
}

/// @param step_n, step_head  from a CTA's head to its next: the grid's size in requests and heads
template <class Traits>
__global__ __launch_bounds__(Traits::kNumThreads, Traits::kMinCtas) void kda_verify_kernel(
    const __grid_constant__ KdaVerifyProblem p, int step_n, int step_head, bool guess_request) {
  extern __shared__ __align__(16) std::byte dynamic_shared[];
  VerifyTask<Traits> task(p, dynamic_shared);
  VerifyShared<Traits>& shared = *task.shared;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Traits::kStages; ++stage) {
      mbarrier_init(&shared.request_known[stage], 1);
      mbarrier_init(&shared.stage_free[stage], 32 * Traits::kChainWarps);
      for (int t = 0; t < kKdaMaxVerifyTokens; ++t) {
        mbarrier_init(&shared.query_made[stage][t], 32);
        mbarrier_init(&shared.token_made[stage][t], 4 * 32);
      }
    }
    if constexpr (Traits::kClusterSize > 1)
      arm(&shared.squares_arrived,
          static_cast<std::uint32_t>(p.max_query_len) * Traits::kClusterSize * sizeof(float));
  }
  if (guess_request) prefetch_all(p, task);
  __syncthreads();
  if constexpr (Traits::kClusterSize > 1) cluster_arrive_relaxed();
  pdl_wait();

  if (task.warp < Traits::kChainWarps) {
    if constexpr (Traits::kChainRegisters != 0) raise_registers<Traits::kChainRegisters>();
    run_chains(p, task, step_n, step_head);
  } else {
    if constexpr (Traits::kTokenRegisters != 0) lower_registers<Traits::kTokenRegisters>();
    task.warp -= Traits::kChainWarps;
    make_tokens(p, task, step_n, step_head);
    if constexpr (Traits::kClusterSize > 1) cluster_wait();
  }
}

}  // namespace k3::cuda
