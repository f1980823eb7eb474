// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/kda_prefill/chain.cuh"

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
  __device__ FactorLoader(const KdaPrefillProblem& p, const PrefillPlan& plan,
                          const PrefillChainTask& task, int half,
                          PrefillChainShared<kStages>& shared)
      : factors_(first_factors(p, plan, task)),
        step_(p.HV),
        half_(half),
        left_(kParts * task.sequence.num_chunks),
        shared_(shared) {}

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
  const ChunkFactors* factors_;
  int step_;
  int half_;
  int left_;
  int part_ = 0;
  int stage_ = 0;
  unsigned parity_ = 0;
  PrefillChainShared<kStages>& shared_;
};

/// sums += S^T times the transpose of a [64 tokens x 128 keys] tile.
__device__ inline void multiply_state(const ChainState& S, std::uint32_t tile, int lane,
                                      ChainTokens& sums) {
  const ColumnsLane<kHalf> columns(tile, lane);
#pragma unroll
  for (int k = 0; k < kHeadDim; k += 16) {
    const FragmentA a = as_operand(S[k / 8], S[k / 8 + 1]);
#pragma unroll
    for (int t = 0; t < kChunk / 16; ++t) {
      std::uint32_t b[4];
      load_b_of_transpose(b, columns, k / kHalf * kChunk + 16 * t, k % kHalf);
      multiply_add(sums[2 * t], sums[2 * t + 1], a, b);
    }
  }
}

/// O += N A^T; A is zero above its diagonal.
__device__ inline void multiply_output(const ChainTokens& N, std::uint32_t tile, int lane,
                                       ChainTokens& O) {
  const ColumnsLane<kChunk> columns(tile, lane);
#pragma unroll
  for (int j = 0; j < kChunk / 16; ++j) {
    const FragmentA a = as_operand(N[2 * j], N[2 * j + 1]);
#pragma unroll
    for (int t = j; t < kChunk / 16; ++t) {
      std::uint32_t b[4];
      load_b_of_transpose(b, columns, 16 * t, 16 * j);
      multiply_add(O[2 * t], O[2 * t + 1], a, b);
    }
  }
}

/// S = S diag(gamma)
__device__ inline void decay_state(const float* gamma, int lane, ChainState& S) {
#pragma unroll
  for (int tile = 0; tile < kHeadDim / 8; ++tile) {
    const float2 decay = *reinterpret_cast<const float2*>(gamma + 8 * tile + 2 * (lane % 4));
    float(&c)[4] = S[tile].c;
    c[0] *= decay.x;
    c[1] *= decay.y;
    c[2] *= decay.x;
    c[3] *= decay.y;
  }
}

/// S += N K
__device__ inline void update_state(const ChainTokens& N, std::uint32_t tile, int lane,
                                    ChainState& S) {
  const RowsLane<kHalf> rows(tile, lane);
#pragma unroll
  for (int j = 0; j < kChunk / 16; ++j) {
    const FragmentA a = as_operand(N[2 * j], N[2 * j + 1]);
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      std::uint32_t b[4];
      load_b(b, rows, k / kHalf * kChunk + 16 * j, k % kHalf);
      multiply_add(S[k / 8], S[k / 8 + 1], a, b);
    }
  }
}

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

template <int kStages>
__device__ void run_chain(const KdaPrefillProblem& p, const PrefillPlan& plan,
                          const PrefillChainTask& task, int half,
                          PrefillChainShared<kStages>& shared, int warp, int lane) {
  const bool loads = threadIdx.x == 0;
  FactorLoader<kStages> loader(p, plan, task, half, shared);
  if (loads)
    for (int i = 0; i < kParts * kStages; ++i) loader.bring();
  const int first_value = kHalf * half + kWarpValues * warp;
  const ChainStates states(p, task, first_value, lane);
  ChainState S;
  states.load_initial(S);
  int stage = 0;
  unsigned parity = 0;
  bf16* out = first_output(p, task, first_value);
  for (int c = 0; c < task.sequence.num_chunks; ++c, out += kChunk * p.out_strides.token) {
    states.store_border(c, S);
    const ChainStage& factors = shared.stages[stage];
    const auto begin = [&](int part) { mbarrier_wait(&shared.full[stage][part], parity); };
    const auto release = [&](int part) {
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&shared.free[stage][part]);
    };
    begin(0);
    if (loads && c > 0) loader.bring();  // the last chunk's part 2
    ChainTokens N;
    load_new_values(shared_address(factors.u), kWarpValues * warp, lane, N);
    multiply_state(S, shared_address(factors.minus_w), lane, N);
    release(0);

    begin(1);
    ChainTokens O;
    multiply_state(S, shared_address(factors.q_decayed), lane, O);
    if (loads) loader.bring();  // part 0
    multiply_output(N, shared_address(factors.output_matrix), lane, O);
    release(1);

    begin(2);
    decay_state(factors.gamma, lane, S);
    update_state(N, shared_address(factors.k_remaining), lane, S);
    release(2);
    if (loads) loader.bring();  // part 1
    ChainTokensOperand rounded;
    round_sums(O, rounded);
    write_outputs(rounded, shared.out[warp], rows_of_chunk(task.sequence, c), lane, out,
                  p.out_strides.token);
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1U;
    }
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

  const auto half = static_cast<int>(blockIdx.x % 2);
  run_chain(p, plan, find_task(p, plan, static_cast<int>(blockIdx.x / 2)), half, shared,
            static_cast<int>(threadIdx.x) / 32, static_cast<int>(threadIdx.x) % 32);
}

}  // namespace k3::cuda
