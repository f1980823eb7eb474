// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cub/block/block_scan.cuh>

#include "contract/kda_prefill.h"
#include "cuda/common/mma.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/kda/sequences.cuh"
#include "cuda/kda/step.cuh"

/// What the kernels of a prefill leave each other in the workspace, and the first of them: it reads
/// cu_seqlens and cuts the sequences into chunks.
namespace k3::cuda {

inline constexpr int kChunk = kKdaChunkTokens;
inline constexpr int kHalf = kHeadDim / 2;
inline constexpr int kHalfTile = kChunk * kHalf;  ///< elements
inline constexpr int kHalfTileBytes = kHalfTile * static_cast<int>(sizeof(bf16));

/// [64 tokens x 128 channels], as two tiles of 64 channels each.
struct HalvedTile {
  /// Byte offset of an element.
  __device__ static int offset(int row, int column) {
    return column / kHalf * kHalfTileBytes + SwizzledTile<kHalf>::offset(row, column % kHalf);
  }
};

/// A sequence as the kernels see it.
struct PrefillSequence {
  std::int64_t begin = 0;  ///< first token, of its batch row
  std::int64_t length = 0;
  int first_chunk = 0;  ///< of all chunks, in the order of the sequences
  int num_chunks = 0;
};

/// What the chain needs of a chunk and head, made by the builder. Tiles of 64 columns, swizzled as
/// they stand in shared memory (common/mma.cuh), so that bulk copies bring them.
struct alignas(128) ChunkFactors {
  bf16 minus_w[2][kHalfTile];           ///< -M (k exp(G)), rows are tokens
  bf16 u[2][kHalfTile];                 ///< M v, columns are value channels
  bf16 q_decayed[2][kHalfTile];         ///< scale q exp(G)
  bf16 output_matrix[kChunk * kChunk];  ///< scale q_i . k_j exp(G_i - G_j) for j <= i, else 0
  bf16 k_remaining[2][kHalfTile];       ///< k exp(G_last - G)
  float gamma[kHeadDim];                ///< exp(G_last)
};

/// The workspace. Without cu_seqlens sequences and chunks are a matter of arithmetic.
struct PrefillPlan {
  ChunkFactors* factors = nullptr;       ///< [chunks, HV]
  PrefillSequence* sequences = nullptr;  ///< [N]
  std::int32_t* longest = nullptr;       ///< [N], sequences, the longest first
  std::int32_t* sequence_of = nullptr;   ///< [chunks]
  std::int32_t* num_chunks = nullptr;    ///< [1]
};

/// Up to so many sequences are sorted by length.
inline constexpr int kMaxSorted = 512;
inline constexpr int kPlanThreads = 1024;

__device__ inline PrefillSequence find_sequence(const KdaPrefillProblem& p, const PrefillPlan& plan,
                                                int n) {
  if (p.packed) return plan.sequences[n];
  const int chunks = static_cast<int>((p.T + kChunk - 1) / kChunk);
  return {0, p.T, n * chunks, chunks};
}

/// One CTA. Boundaries are clamped to [0, T] and never go back, whatever stands in memory, so that
/// chunks and tokens stay within their bounds.
__global__ __launch_bounds__(kPlanThreads) void kda_prefill_plan_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
  using MaxScan = cub::BlockScan<std::int64_t, kPlanThreads>;
  using SumScan = cub::BlockScan<int, kPlanThreads>;
  __shared__ union {
    typename MaxScan::TempStorage max;
    typename SumScan::TempStorage sum;
    int counts[kMaxSorted];
  } shared;
  const int thread = static_cast<int>(threadIdx.x);
  const auto later = [](std::int64_t a, std::int64_t b) { return a > b ? a : b; };
  pdl_wait();
  pdl_launch_dependents();

  std::int64_t reached = sequence_begin(p, 0);
  int chunks = 0;
  for (int n0 = 0; n0 < p.N; n0 += kPlanThreads) {
    const int n = n0 + thread;
    const bool exists = n < p.N;
    const std::int64_t raw_begin = exists ? sequence_begin(p, n) : 0;
    const std::int64_t raw_end = exists ? sequence_begin(p, n + 1) : 0;
    std::int64_t begin = 0;
    std::int64_t furthest = 0;
    MaxScan(shared.max).InclusiveScan(raw_begin, begin, later, furthest);
    __syncthreads();
    begin = later(begin, reached);
    const std::int64_t length = exists ? later(raw_end - begin, 0) : 0;
    reached = later(reached, furthest);
    const int count = static_cast<int>((length + kChunk - 1) / kChunk);
    int first = 0;
    int total = 0;
    SumScan(shared.sum).ExclusiveSum(count, first, total);
    __syncthreads();
    if (exists) plan.sequences[n] = {begin, length, chunks + first, count};
    chunks += total;
  }
  if (thread == 0) *plan.num_chunks = chunks;
  __syncthreads();

  for (int n = thread / 32; n < p.N; n += kPlanThreads / 32) {
    const PrefillSequence sequence = plan.sequences[n];
    for (int c = thread % 32; c < sequence.num_chunks; c += 32)
      plan.sequence_of[sequence.first_chunk + c] = n;
  }

  if (p.N > kMaxSorted) {
    for (int n = thread; n < p.N; n += kPlanThreads) plan.longest[n] = n;
    return;
  }
  if (thread < p.N) shared.counts[thread] = plan.sequences[thread].num_chunks;
  __syncthreads();
  if (thread >= p.N) return;
  int rank = 0;
  for (int n = 0; n < p.N; ++n)
    rank += shared.counts[n] > shared.counts[thread] ||
            (shared.counts[n] == shared.counts[thread] && n < thread);
  plan.longest[rank] = thread;
}

}  // namespace k3::cuda
