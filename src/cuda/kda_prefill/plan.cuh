// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cub/block/block_scan.cuh>

#include "contract/kda_prefill.h"
#include "cuda/common/mma.cuh"
#include "cuda/kda/sequences.cuh"
#include "cuda/kda/step.cuh"

/// What the kernels of a prefill leave each other in the workspace, and how sequences lie in it.
/// Chunks have the slots of `Sequences::num_chunk_slots`, which need no sum over lengths.
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

/// A sequence as the chain sees it.
struct PrefillSequence {
  std::int64_t begin = 0;  ///< first token, of its batch row
  std::int64_t length = 0;
  std::int64_t first_slot = 0;   ///< of its factors
  std::int64_t first_chunk = 0;  ///< of all chunks, in the order of the sequences
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

/// The workspace. The two lists are there where cu_seqlens cuts more than one sequence.
struct PrefillPlan {
  std::int64_t num_slots = 0;           ///< of chunks
  ChunkFactors* factors = nullptr;      ///< [num_slots, HV]
  std::int64_t* first_chunk = nullptr;  ///< [N], chunks of all sequences before
  std::int32_t* longest = nullptr;      ///< [N], sequences, the longest first
};

__device__ inline std::int64_t chunks_of(std::int64_t length) {
  return (length + kChunk - 1) / kChunk;
}

/// Packed only: never negative, whatever stands in memory.
__device__ inline std::int64_t sequence_length(const KdaPrefillProblem& p, int n) {
  const std::int64_t length = sequence_begin(p, n + 1) - sequence_begin(p, n);
  return length > 0 ? length : 0;
}

__device__ inline PrefillSequence find_sequence(const KdaPrefillProblem& p, const PrefillPlan& plan,
                                                int n) {
  PrefillSequence s;
  s.length = p.packed ? sequence_length(p, n) : p.T;
  const std::int64_t chunks = chunks_of(s.length);
  s.num_chunks = static_cast<int>(chunks);
  if (p.packed) {
    s.begin = sequence_begin(p, n);
    s.first_slot = s.begin / kChunk + n;
    s.first_chunk = plan.first_chunk != nullptr ? plan.first_chunk[n] : 0;
  } else {
    s.first_slot = s.first_chunk = n * chunks;
  }
  return s;
}

/// Up to so many sequences are sorted by length.
inline constexpr int kMaxSorted = 1024;

template <int kThreads>
struct OrderShared {
  using Scan = cub::BlockScan<std::int64_t, kThreads>;
  typename Scan::TempStorage scan;
  std::int64_t chunks[kMaxSorted];
};

/// Makes the lists of the plan; one CTA.
template <int kThreads>
__device__ void order_sequences(const KdaPrefillProblem& p, const PrefillPlan& plan,
                                OrderShared<kThreads>& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  std::int64_t before = 0;
  for (int n0 = 0; n0 < p.N; n0 += kThreads) {
    const int n = n0 + thread;
    const std::int64_t chunks = n < p.N ? chunks_of(sequence_length(p, n)) : 0;
    std::int64_t first = 0;
    std::int64_t total = 0;
    typename OrderShared<kThreads>::Scan(shared.scan).ExclusiveSum(chunks, first, total);
    if (n < p.N) {
      plan.first_chunk[n] = before + first;
      if (n < kMaxSorted) shared.chunks[n] = chunks;
    }
    before += total;
    __syncthreads();
  }
  for (int n = thread; n < p.N; n += kThreads) {
    int rank = n;
    if (p.N <= kMaxSorted) {
      rank = 0;
      for (int other = 0; other < p.N; ++other)
        rank += shared.chunks[other] > shared.chunks[n] ||
                (shared.chunks[other] == shared.chunks[n] && other < n);
    }
    plan.longest[rank] = n;
  }
}

}  // namespace k3::cuda
