// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_front/plain_product.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/launch.h"
#include "cuda/common/mma.cuh"
#include "cuda/common/pdl.cuh"

/// 64 x 64 elements of c a CTA, 16 rows a warp; K in steps of 32 through shared memory, one element
/// a load. Each element of c is one chain over K.
namespace k3::cuda {
namespace {

constexpr int kTile = 64;
constexpr int kStep = 32;
constexpr int kThreads = 128;
constexpr int kPitch = kStep + 8;  // a fragment's 32 lanes then read 32 banks

using Bits = std::uint16_t;

struct Shared {
  Bits a[kTile][kPitch];
  Bits b[kTile][kPitch];
};

/// Zeros past the matrix.
__device__ void load_tile(Bits (&tile)[kTile][kPitch], const Bits* matrix, std::int64_t stride,
                          std::int64_t rows, std::int64_t columns, std::int64_t first_row,
                          std::int64_t first_column) {
  const int column = static_cast<int>(threadIdx.x) % kStep;
#pragma unroll 8
  for (int i = 0; i < kTile * kStep / kThreads; ++i) {
    const int row = i * (kThreads / kStep) + static_cast<int>(threadIdx.x) / kStep;
    const bool exists = first_row + row < rows && first_column + column < columns;
    tile[row][column] =
        exists ? matrix[(first_row + row) * stride + first_column + column] : Bits{0};
  }
}

__device__ std::uint32_t load_pair(const Bits* at) {
  return *reinterpret_cast<const std::uint32_t*>(at);
}

__global__ __launch_bounds__(kThreads) void plain_product_kernel(
    const __grid_constant__ LtProduct p, std::int64_t column_tiles, std::int64_t num_tiles) {
  __shared__ alignas(16) Shared s;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  pdl_launch_dependents();
  pdl_wait();
  for (std::int64_t tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    const std::int64_t m = tile / column_tiles * kTile;
    const std::int64_t n = tile % column_tiles * kTile;
    FragmentC c[kTile / 8];
    for (std::int64_t k = 0; k < p.K; k += kStep) {
      load_tile(s.a, static_cast<const Bits*>(p.a), p.a_stride, p.M, p.K, m, k);
      load_tile(s.b, static_cast<const Bits*>(p.b), p.b_stride, p.N, p.K, n, k);
      __syncthreads();  // both tiles are there
#pragma unroll
      for (int part = 0; part < kStep; part += 16) {
        const Bits* const upper = &s.a[16 * warp + g][part + 2 * t];
        const Bits* const lower = upper + 8 * kPitch;
        const FragmentA a = {
            {load_pair(upper), load_pair(lower), load_pair(upper + 8), load_pair(lower + 8)}};
#pragma unroll
        for (int j = 0; j < kTile / 8; ++j) {
          const Bits* const b = &s.b[8 * j + g][part + 2 * t];
          multiply_add(c[j], a, load_pair(b), load_pair(b + 8));
        }
      }
      __syncthreads();  // before they are written again
    }
#pragma unroll
    for (int j = 0; j < kTile / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t row = m + 16 * warp + g + i / 2 * 8;
        const std::int64_t column = n + 8 * j + 2 * t + i % 2;
        if (row < p.M && column < p.N) p.c[row * p.N + column] = c[j].c[i];
      }
  }
}

}  // namespace

cudaError_t launch_plain_product(const LtProduct& p, const Target& target) {
  constexpr std::int64_t kMaxCtas = (std::int64_t{1} << 31) - 1;
  const std::int64_t column_tiles = (p.N + kTile - 1) / kTile;
  const std::int64_t num_tiles = (p.M + kTile - 1) / kTile * column_tiles;
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(std::min(num_tiles, kMaxCtas)));
  config.block = dim3(kThreads);
  return launch(plain_product_kernel, config, p, column_tiles, num_tiles);
}

}  // namespace k3::cuda
