// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/pdl.cuh"
#include "cuda/tiny_gemm/tile.cuh"

/// The variant for short rows: a warp makes the eight columns of a tile by itself.
///
///   w   global -> registers, before pdl_wait
///   x   global -> shared after it, once a CTA: if every warp asked for it, the few lines of x
///   would
///       be what all of them wait for. Rows are 64 bytes more than a multiple of 128 apart
namespace k3::cuda {

inline constexpr int kColumnsWarps = 8;

/// A load of what no kernel writes. Unlike one through the read-only path, it stays ahead of
/// pdl_wait.
__device__ inline uint4 load_early(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
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
    if (n < p.N && at < p.K) w[i] = load_early(p.w + n * p.w_stride + at);
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
