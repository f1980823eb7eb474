// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/kda_prefill/warp_products.cuh"

/// The chain with warp-level products, for every chip: one CTA of four warps for half of the value
/// channels of a (sequence, value head). One thread of warp 0 also brings the factors of the next
/// chunks, in three parts.
///
/// Shared memory: kStages stages of the three parts; for each warp its outputs on their way.
///
/// Barriers, for each stage and part (0: W and U, 1: Q and A, 2: K and gamma):
///   full   counts the bytes of its bulk copies
///   free   the four warps have read it
namespace k3::cuda {

inline constexpr int kChainWarps = 4;
inline constexpr int kChainThreads = 32 * kChainWarps;
inline constexpr int kParts = 3;

/// Half of a chunk's outputs of a warp on their way: rows are tokens. Eight rows of either piece
/// of 16 bytes lie in different banks.
struct alignas(16) StagedOutputs {
  static constexpr int kRows = kChunk / 2;
  bf16 values[kRows * kWarpValues];

  __device__ static int offset(int row, int piece) {
    return (kWarpValues * row + 8 * (piece ^ (row / 4 % 2))) * static_cast<int>(sizeof(bf16));
  }
};

struct ChainStage {
  bf16 minus_w[2][kHalfTile];
  bf16 u[kHalfTile];
  bf16 q_decayed[2][kHalfTile];  ///< with output_matrix as in ChunkFactors
  bf16 output_matrix[kChunk * kChunk];
  bf16 k_remaining[2][kHalfTile];  ///< with gamma as in ChunkFactors
  float gamma[kHeadDim];
};

template <int kStages>
struct PrefillChainShared {
  ChainStage stages[kStages];
  StagedOutputs out[kChainWarps];
  MBarrier full[kStages][kParts];
  MBarrier free[kStages][kParts];
};

/// Brings the factors of a chain's chunks, part by part and in order; one thread. A part is asked
/// for while the chain works on the next one, so that it has a turn of the stages to arrive.
template <int kStages>
class FactorLoader {
 public:
  /// `step` lies between the factors of a chunk and those of the next.
  __device__ FactorLoader(int step, PrefillChainShared<kStages>& shared)
      : step_(step), shared_(shared) {}

  /// The next chain, when all of the last one is there.
  __device__ void start(const ChunkFactors* factors, int num_chunks, int half) {
    factors_ = factors;
    half_ = half;
    left_ = kParts * num_chunks;
  }

  /// The next part, if any, once its place is free.
  __device__ void bring() {
    if (left_ == 0) return;
    --left_;
    mbarrier_wait(&shared_.free[stage_][part_], parity_ ^ 1U);
    MBarrier* const full = &shared_.full[stage_][part_];
    ChainStage& to = shared_.stages[stage_];
    constexpr std::uint32_t kWideBytes = sizeof(ChainStage::minus_w);
    constexpr std::uint32_t kHalfBytes = sizeof(ChainStage::u);
    constexpr std::uint32_t kGammaBytes = sizeof(ChainStage::gamma);
    if (part_ == 0) {
      mbarrier_expect(full, kWideBytes + kHalfBytes);
      bulk_load(to.minus_w, factors_->minus_w, kWideBytes, full);
      bulk_load(to.u, factors_->u[half_], kHalfBytes, full);
    } else if (part_ == 1) {
      mbarrier_expect(full, kWideBytes + kHalfBytes);
      bulk_load(to.q_decayed, factors_->q_decayed, kWideBytes + kHalfBytes, full);
    } else {
      mbarrier_expect(full, kWideBytes + kGammaBytes);
      bulk_load(to.k_remaining, factors_->k_remaining, kWideBytes + kGammaBytes, full);
    }
    if (++part_ < kParts) return;
    part_ = 0;
    factors_ += step_;
    if (++stage_ < kStages) return;
    stage_ = 0;
    parity_ ^= 1U;
  }

 private:
  const ChunkFactors* factors_ = nullptr;
  int step_;
  int half_ = 0;
  int left_ = 0;
  int part_ = 0;
  int stage_ = 0;
  unsigned parity_ = 0;
  PrefillChainShared<kStages>& shared_;
};

/// O^T through the warp's shared memory into rows of out: 32 bytes a token.
__device__ inline void write_outputs(const ChainTokensOperand& O, StagedOutputs& staged, int rows,
                                     int lane, bf16* out, std::int64_t token_stride) {
  const std::uint32_t base = shared_address(staged.values);
  const auto* const bytes = reinterpret_cast<const std::byte*>(staged.values);
#pragma unroll
  for (int first = 0; first < kChunk; first += StagedOutputs::kRows) {
    __syncwarp();
#pragma unroll
    for (int t = 0; t < StagedOutputs::kRows; t += 16)
      store_matrices_transposed(
          O[(first + t) / 16].a,
          base + StagedOutputs::offset(t + lane % 8 + 8 * (lane / 16), lane / 8 % 2));
    __syncwarp();
#pragma unroll
    for (int t = 0; t < StagedOutputs::kRows; t += 16) {
      const int row = t + lane / 2;
      const int piece = lane % 2;
      if (first + row < rows)
        *reinterpret_cast<uint4*>(out + (first + row) * token_stride + 8 * piece) =
            *reinterpret_cast<const uint4*>(bytes + StagedOutputs::offset(row, piece));
    }
  }
}

/// One task. The loader, and where the ring stands, go on from the last one.
template <int kStages>
__device__ void run_chain(const KdaPrefillProblem& p, const PrefillPlan& plan,
                          const PrefillChainTask& task, int half, FactorLoader<kStages>& loader,
                          RingPlace<kStages>& place, PrefillChainShared<kStages>& shared, int warp,
                          int lane) {
  const bool loads = threadIdx.x == 0;
  if (loads) {
    loader.start(first_factors(p, plan, task), task.sequence.num_chunks, half);
    for (int i = 0; i < kParts * kStages; ++i) loader.bring();
  }
  const int first_value = kHalf * half + kWarpValues * warp;
  const ChainStates<2> states(p, task, first_value, lane);
  ChainState S;
  states.load_initial(S);
  bf16* out = first_output(p, task, first_value);
  for (int c = 0; c < task.sequence.num_chunks; ++c, out += kChunk * p.out_strides.token) {
    states.store_border(c, S);
    const ChainStage& factors = shared.stages[place.stage];
    const auto begin = [&](int part) {
      mbarrier_wait(&shared.full[place.stage][part], place.parity);
    };
    const auto release = [&](int part) {
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&shared.free[place.stage][part]);
    };
    begin(0);
    if (loads && c > 0) loader.bring();  // the last chunk's part 2
    ChainTokens N;
    load_new_values(shared_address(factors.u), kWarpValues * warp, lane, N);
    multiply_state(S, shared_address(factors.minus_w), lane, N);
    release(0);
    ChainTokensOperand rounded_N;
    round_sums(N, rounded_N);

    begin(1);
    ChainTokens O;
    multiply_state(S, shared_address(factors.q_decayed), lane, O);
    if (loads) loader.bring();  // part 0
    multiply_lower(rounded_N, shared_address(factors.output_matrix), lane, O);
    release(1);

    begin(2);
    decay_state<2>(factors.gamma, lane, S);
    update_state(rounded_N, shared_address(factors.k_remaining), lane, S);
    release(2);
    if (loads) loader.bring();  // part 1
    ChainTokensOperand rounded_O;
    round_sums(O, rounded_O);
    write_outputs(rounded_O, shared.out[warp], rows_of_chunk(task.sequence, c), lane, out,
                  p.out_strides.token);
    place.advance();
  }
  states.store_final(S);
}

/// @tparam kStages  with one, two CTAs share an SM and fill each other's waits
template <int kStages>
__global__ __launch_bounds__(kChainThreads, kStages == 1 ? 2 : 1) void kda_prefill_chain_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
  extern __shared__ __align__(1024) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<PrefillChainShared<kStages>*>(dynamic_shared);
  if (threadIdx.x == 0)
    for (int stage = 0; stage < kStages; ++stage)
      for (int part = 0; part < kParts; ++part) {
        mbarrier_init(&shared.full[stage][part], 1);
        mbarrier_init(&shared.free[stage][part], kChainWarps);
      }
  publish_to_bulk_copies();
  __syncthreads();
  pdl_wait();
  pdl_launch_dependents();

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  FactorLoader<kStages> loader(p.HV, shared);
  RingPlace<kStages> place;
  for_each_task(2 * num_heads_of_all(p, plan), [&](unsigned index) {
    run_chain(p, plan, find_task(p, plan, index / 2), static_cast<int>(index % 2), loader, place,
              shared, warp, lane);
  });
}

}  // namespace k3::cuda
