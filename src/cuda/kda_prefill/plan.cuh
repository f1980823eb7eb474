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

/// The workspace. The lists are there where cu_seqlens cuts more than one sequence: then those of
/// more than a chunk, the long ones, are the chain's. Without them all are.
struct PrefillPlan {
  std::int64_t num_slots = 0;           ///< of chunks
  ChunkFactors* factors = nullptr;      ///< [num_slots, HV]
  std::int64_t* first_chunk = nullptr;  ///< [N], chunks of all sequences before
  std::int32_t* longest = nullptr;      ///< the long sequences, the longest first
  std::int32_t* num_long = nullptr;     ///< how many they are
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

/// Chunks of the sequences before n; a whole warp.
__device__ inline std::int64_t chunks_before(const KdaPrefillProblem& p, int n) {
  if (!p.packed) return n * chunks_of(p.T);
  std::int64_t sum = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < n; i += 32)
    sum += chunks_of(sequence_length(p, i));
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2)
    sum += __shfl_xor_sync(kFullWarp, sum, distance);
  return sum;
}

/// Up to so many sequences are sorted by length.
inline constexpr int kMaxSorted = 1024;

/// Chunks of sequences, and how many of those are long.
struct ChunkCount {
  std::int64_t chunks = 0;
  int num_long = 0;

  __device__ ChunkCount operator+(const ChunkCount& other) const {
    return {chunks + other.chunks, num_long + other.num_long};
  }
};

template <int kThreads>
struct OrderShared {
  using Scan = cub::BlockScan<ChunkCount, kThreads>;
  typename Scan::TempStorage scan;
  std::int64_t chunks[kMaxSorted];
};

/// Makes the lists of the plan; one CTA.
template <int kThreads>
__device__ void list_sequences(const KdaPrefillProblem& p, const PrefillPlan& plan,
                               OrderShared<kThreads>& shared) {
  const auto add = [](const ChunkCount& a, const ChunkCount& b) { return a + b; };
  const int thread = static_cast<int>(threadIdx.x);
  const bool sorts = p.N <= kMaxSorted;
  ChunkCount before;
  for (int n0 = 0; n0 < p.N; n0 += kThreads) {
    const int n = n0 + thread;
    const std::int64_t chunks = n < p.N ? chunks_of(sequence_length(p, n)) : 0;
    ChunkCount first;
    ChunkCount total;
    typename OrderShared<kThreads>::Scan(shared.scan)
        .ExclusiveScan(ChunkCount{chunks, chunks > 1 ? 1 : 0}, first, ChunkCount{}, add, total);
    if (n < p.N) {
      plan.first_chunk[n] = before.chunks + first.chunks;
      if (sorts)
        shared.chunks[n] = chunks;
      else if (chunks > 1)
        plan.longest[before.num_long + first.num_long] = n;
    }
    before = before + total;
    __syncthreads();
  }
  if (thread == 0) *plan.num_long = before.num_long;
  if (!sorts) return;
  for (int n = thread; n < p.N; n += kThreads) {
    if (shared.chunks[n] <= 1) continue;
    int rank = 0;
    for (int other = 0; other < p.N; ++other)
      rank += shared.chunks[other] > shared.chunks[n] ||
              (shared.chunks[other] == shared.chunks[n] && other < n);
    plan.longest[rank] = n;
  }
}

}  // namespace k3::cuda
