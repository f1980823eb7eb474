// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/bf16_vector.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/tiny_gemm/tile.cuh"

/// The variant for short rows: a warp makes the eight columns of a tile by itself, x the 16-row
/// operand.
///
///   w   global -> registers, before pdl_wait
///   x   global -> shared after it, once a CTA: if every warp asked for it, the few lines of x
///       would be what all of them wait for. Rows are 64 bytes more than a multiple of 128 apart
namespace k3::cuda {

inline constexpr int kColumnsWarps = 8;
inline constexpr int kTileRows = 8;

/// A lane's share of a chunk of x. Where M is at most 8, `below` is zero.
struct ChunkOfX {
  uint4 above;  ///< row g
  uint4 below;  ///< row g + 8
};

/// Adds the products of a warp's chunk number `i`, two chains on from the last one.
template <int kChains>
__device__ void multiply_chunk(TileSums<kChains>& sums, int i, const ChunkOfX& x, uint4 w) {
  multiply_add(sums.chain[2 * i % kChains], {{x.above.x, x.below.x, x.above.y, x.below.y}}, w.x,
               w.y);
  multiply_add(sums.chain[(2 * i + 1) % kChains], {{x.above.z, x.below.z, x.above.w, x.below.w}},
               w.z, w.w);
}

/// A lane's sums of the tile whose first column is n0, which is even, as far as they are below
/// `end`.
template <bool kTwoHalves>
__device__ void store_tile(const TinyGemmParams& p, int n0, int end, int lane, float4 sums) {
  const int n = n0 + 2 * (lane % 4);
  store_pair(p, lane / 4, n, end, sums.x, sums.y);
  if constexpr (kTwoHalves) store_pair(p, lane / 4 + 8, n, end, sums.z, sums.w);
}

/// @tparam kChunks     2, 4 or 8: hold K
/// @tparam kTwoHalves  M is above 8
template <int kChunks, bool kTwoHalves>
__global__ __launch_bounds__(32 * kColumnsWarps) void tiny_gemm_columns_kernel(
    const __grid_constant__ TinyGemmParams p) {
  constexpr int kThreads = 32 * kColumnsWarps;
  constexpr int kVectors = 4 * kChunks;  // of a row, 16 bytes each
  constexpr int kPitch = kVectors + 4;
  constexpr int kRows = kTwoHalves ? 16 : 8;
  constexpr int kRounds = (kRows * kVectors - 1) / kThreads + 1;  // in which the CTA loads them
  static_assert(kVectors % 8 == 0);
  __shared__ uint4 x_rows[kRows][kPitch];
  const int lane = threadIdx.x % 32;
  const int n0 = kTileRows * (blockIdx.x * kColumnsWarps + static_cast<int>(threadIdx.x) / 32);
  const int n = n0 + lane / 4;

  pdl_launch_dependents();
  uint4 w[kChunks] = {};
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = i * kChunk + 8 * (lane % 4);
    if (n < p.N && at < p.K) w[i] = load_past_l1(p.w + n * p.w_stride + at);
  }
  // Brings x into the L2, where a previous kernel has mostly left it. Once in the grid: many
  // requests for a line on its way would wait for each other.
  const int row = threadIdx.x / kVectors;
  const int k = 8 * (threadIdx.x % kVectors);
  if (blockIdx.x == 0 && k < p.K)
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int r = row + i * (kThreads / kVectors);
      if (r < p.M) prefetch_l2(p.x + r * p.x_stride + k);
    }

  pdl_wait();
  uint4 x_parts[kRounds] = {};
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int r = row + i * (kThreads / kVectors);
    if (r < p.M && k < p.K) x_parts[i] = *reinterpret_cast<const uint4*>(p.x + r * p.x_stride + k);
  }
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int r = row + i * (kThreads / kVectors);
    if (r < kRows) x_rows[r][threadIdx.x % kVectors] = x_parts[i];
  }
  __syncthreads();  // x is there
  TileSums<2> sums;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    ChunkOfX x = {};
    x.above = x_rows[lane / 4][4 * i + lane % 4];
    if constexpr (kTwoHalves) x.below = x_rows[lane / 4 + 8][4 * i + lane % 4];
    multiply_chunk(sums, i, x, w[i]);
  }
  store_tile<kTwoHalves>(p, n0, p.N, lane, total(sums));
}

}  // namespace k3::cuda
