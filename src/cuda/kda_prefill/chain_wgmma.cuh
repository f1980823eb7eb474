// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/wgmma.cuh"
#include "cuda/kda_prefill/chain.cuh"

/// The chain with products of warpgroups (sm_90a). A CTA has kGroups warpgroups, each with 64 value
/// channels of a (sequence, value head), and behind them a warp whose first thread brings factors.
/// With two groups all factors but U serve both; they need the registers of a whole warpgroup.
///
///   warps                  role       registers (two groups)
///   0 .. 4 kGroups - 1     consumer   240
///   the next               producer   24
///
/// Order of a group's products, so that none waits for what is not a sum of it: while S rounds, the
/// second output product of this chunk runs; while N rounds, the first one of the next.
///
///   turn c    S += N K    O += N A^T    | S rounds |  N' = U' - S W'   | O rounds |  O' = S Q'
///             O goes out, S decays      | N' rounds |
///
/// The last turn issues N' and O' of a chunk that is not there: its sums are not read.
///
/// Shared memory: kWgmmaStages stages of a chunk's factors in three parts; for each warp its
/// outputs on their way.
///
/// Barriers, for each stage and part (0: W, U and gamma, 1: Q and A, 2: K):
///   full   counts the bytes of its bulk copies
///   free   the consumers' warps have read it
namespace k3::cuda {

inline constexpr int kWgmmaStages = 3;
inline constexpr int kWgmmaParts = 3;
inline constexpr int kWarpsOfGroup = 4;
inline constexpr int kConsumerRegisters = 240;
inline constexpr int kProducerRegisters = 24;

template <int kGroups>
inline constexpr int kWgmmaThreads = 32 * kWarpsOfGroup * kGroups + (kGroups == 1 ? 32 : 128);

/// Every tile begins at a multiple of 1024 bytes.
template <int kGroups>
struct WgmmaStage {
  bf16 minus_w[2][kHalfTile];
  bf16 u[kGroups][kHalfTile];
  bf16 q_decayed[2][kHalfTile];  ///< with output_matrix as in ChunkFactors
  bf16 output_matrix[kChunk * kChunk];
  bf16 k_remaining[2][kHalfTile];
};

template <int kGroups>
struct alignas(1024) WgmmaChainShared {
  WgmmaStage<kGroups> stages[kWgmmaStages];
  float gamma[kWgmmaStages][kHeadDim];
  StagedOutputs out[kWarpsOfGroup * kGroups];
  MBarrier full[kWgmmaStages][kWgmmaParts];
  MBarrier free[kWgmmaStages][kWgmmaParts];
};

/// A chunk's place in the ring of stages.
struct RingPlace {
  int stage = 0;
  unsigned parity = 0;

  __device__ void advance() {
    if (++stage < kWgmmaStages) return;
    stage = 0;
    parity ^= 1U;
  }
};

/// One thread: all chunks, part by part, each as soon as its place is free.
template <int kGroups>
__device__ void bring_factors(const ChunkFactors* from, int step, int num_chunks, int half,
                              WgmmaChainShared<kGroups>& shared) {
  constexpr std::uint32_t kNewValueBytes = kGroups * kHalfTileBytes;
  constexpr std::uint32_t kGammaBytes = sizeof(ChunkFactors::gamma);
  RingPlace place;
  for (int c = 0; c < num_chunks; ++c, from += step, place.advance()) {
    WgmmaStage<kGroups>& to = shared.stages[place.stage];
    const auto begin = [&](int part, std::uint32_t bytes) {
      mbarrier_wait(&shared.free[place.stage][part], place.parity ^ 1U);
      MBarrier* const full = &shared.full[place.stage][part];
      mbarrier_expect(full, bytes);
      return full;
    };
    MBarrier* full = begin(0, sizeof(to.minus_w) + kNewValueBytes + kGammaBytes);
    bulk_load(to.u, from->u[half], kNewValueBytes, full);
    bulk_load(to.minus_w, from->minus_w, sizeof(to.minus_w), full);
    bulk_load(shared.gamma[place.stage], from->gamma, kGammaBytes, full);
    full = begin(1, sizeof(to.q_decayed) + sizeof(to.output_matrix));
    bulk_load(to.q_decayed, from->q_decayed, sizeof(to.q_decayed) + sizeof(to.output_matrix), full);
    full = begin(2, sizeof(to.k_remaining));
    bulk_load(to.k_remaining, from->k_remaining, sizeof(to.k_remaining), full);
  }
}

/// sums = S^T times the transpose of a [64 tokens x 128 keys] tile, or that added.
template <bool kKeep>
__device__ void issue_state_product(const ChainStateOperand& S, const bf16 (&tile)[2][kHalfTile],
                                    ChainTokens& sums) {
  hold(sums);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kHeadDim; k += 16) {
    const std::uint64_t b = describe_columns(shared_address(tile[k / kHalf]), k % kHalf);
    if (kKeep || k > 0)
      issue_by_columns<true>(sums, S[k / 16], b);
    else
      issue_by_columns<false>(sums, S[k / 16], b);
  }
  wgmma_commit();
}

/// S += N K
__device__ inline void issue_state_update(const ChainTokensOperand& N,
                                          const bf16 (&tile)[2][kHalfTile], ChainState& S) {
#pragma unroll
  for (int j = 0; j < kChunk; j += 16)
    issue_by_rows<true>(S, N[j / 16], describe_rows(shared_address(tile[0]), j, kHalfTileBytes));
  wgmma_commit();
}

/// O += N A^T
__device__ inline void issue_output(const ChainTokensOperand& N,
                                    const bf16 (&tile)[kChunk * kChunk], ChainTokens& O) {
#pragma unroll
  for (int j = 0; j < kChunk; j += 16)
    issue_by_columns<true>(O, N[j / 16], describe_columns(shared_address(tile), j));
  wgmma_commit();
}

/// Sums whose group is done become an operand.
template <int kOperands>
__device__ void round_held(FragmentC (&sums)[2 * kOperands], FragmentA (&operands)[kOperands]) {
  hold(sums);
  round_sums(sums, operands);
  hold(operands);
}

/// A consumer warp: one of `group`.
template <int kGroups>
__device__ void run_wgmma_chain(const KdaPrefillProblem& p, const PrefillChainTask& task,
                                int first_value, WgmmaChainShared<kGroups>& shared, int warp,
                                int lane) {
  const int group = warp / kWarpsOfGroup;
  const int warp_value = kWarpValues * (warp % kWarpsOfGroup);
  const ChainStates states(p, task, first_value, lane);
  const int num_chunks = task.sequence.num_chunks;
  ChainState S;
  states.load_initial(S);
  if (num_chunks == 0) {
    states.store_final(S);
    return;
  }
  const auto wait_for = [&](const RingPlace& place, int part) {
    mbarrier_wait(&shared.full[place.stage][part], place.parity);
  };
  const auto release = [&](const RingPlace& place, int part) {
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&shared.free[place.stage][part]);
  };
  const auto load_u = [&](const RingPlace& place, ChainTokens& N) {
    load_new_values(shared_address(shared.stages[place.stage].u[group]), warp_value, lane, N);
  };

  ChainStateOperand rounded_S;
  ChainTokensOperand rounded_N;
  ChainTokens N;
  ChainTokens O;
  RingPlace next;
  states.store_border(0, S);
  round_held(S, rounded_S);
  wait_for(next, 0);
  load_u(next, N);
  issue_state_product<true>(rounded_S, shared.stages[0].minus_w, N);
  wait_for(next, 1);
  issue_state_product<false>(rounded_S, shared.stages[0].q_decayed, O);
  decay_state(shared.gamma[0], lane, S);
  wgmma_wait<1>();
  release(next, 0);
  round_held(N, rounded_N);

  bf16* out = first_output(p, task, first_value);
#pragma unroll 1
  for (int c = 0; c < num_chunks; ++c, out += kChunk * p.out_strides.token) {
    const RingPlace now = next;
    const bool more = c + 1 < num_chunks;
    const WgmmaStage<kGroups>& factors = shared.stages[now.stage];
    wait_for(now, 2);
    hold(S);
    hold(O);
    wgmma_fence();
    issue_state_update(rounded_N, factors.k_remaining, S);
    issue_output(rounded_N, factors.output_matrix, O);
    next.advance();
    const WgmmaStage<kGroups>& next_factors = shared.stages[next.stage];
    if (more) wait_for(next, 0);
    load_u(next, N);
    wgmma_wait<1>();  // S, and the first product of O
    release(now, 2);
    round_held(S, rounded_S);
    issue_state_product<true>(rounded_S, next_factors.minus_w, N);
    wgmma_wait<1>();  // O
    release(now, 1);
    ChainTokensOperand rounded_O;
    round_held(O, rounded_O);
    if (more) wait_for(next, 1);
    issue_state_product<false>(rounded_S, next_factors.q_decayed, O);
    write_outputs(rounded_O, shared.out[warp], rows_of_chunk(task.sequence, c), lane, out,
                  p.out_strides.token);
    if (more) {
      states.store_border(c + 1, S);
      decay_state(shared.gamma[next.stage], lane, S);
    }
    wgmma_wait<1>();  // N
    if (more) release(next, 0);
    round_held(N, rounded_N);
  }
  wgmma_wait<0>();
  hold(O);
  states.store_final(S);
}

template <int kGroups>
__global__ __launch_bounds__(kWgmmaThreads<kGroups>, 1) void kda_prefill_wgmma_chain_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
#ifdef K3_HAS_WGMMA
  extern __shared__ __align__(1024) std::byte wgmma_shared[];
  auto& shared = *reinterpret_cast<WgmmaChainShared<kGroups>*>(wgmma_shared);
  constexpr int kConsumerWarps = kWarpsOfGroup * kGroups;
  // The same in all lanes of a warp, which the compiler cannot see by itself.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0)
    for (int stage = 0; stage < kWgmmaStages; ++stage)
      for (int part = 0; part < kWgmmaParts; ++part) {
        mbarrier_init(&shared.full[stage][part], 1);
        mbarrier_init(&shared.free[stage][part], kConsumerWarps);
      }
  publish_to_bulk_copies();
  __syncthreads();
  pdl_wait();
  pdl_launch_dependents();

  const auto index = static_cast<int>(blockIdx.x);
  const int half = kGroups == 1 ? index % 2 : 0;
  const PrefillChainTask task = find_task(p, plan, kGroups == 1 ? index / 2 : index);
  if (warp >= kConsumerWarps) {
    if constexpr (kGroups > 1) give_registers<kProducerRegisters>();
    if (warp == kConsumerWarps && lane == 0)
      bring_factors(first_factors(p, plan, task), p.HV, task.sequence.num_chunks, half, shared);
    return;
  }
  if constexpr (kGroups > 1) take_registers<kConsumerRegisters>();
  run_wgmma_chain(p, task, kHalf * half + kWarpValues * warp, shared, warp, lane);
#endif
}

}  // namespace k3::cuda
