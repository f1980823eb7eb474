// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/pdl.cuh"
#include "cuda/tiny_gemm/tile.cuh"

/// The variant for short rows: a warp makes eight columns by itself, with w in registers from
/// before pdl_wait.
namespace k3::cuda {

template <int kChunks, bool kTwoHalves>
__global__ __launch_bounds__(256) void tiny_gemm_columns_kernel(
    const __grid_constant__ TinyGemmParams p) {
  pdl_launch_dependents();
  const int lane = threadIdx.x % 32;
  const int n0 = 8 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
  const int n = n0 + lane / 4;
  uint4 w[kChunks];
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int k = chunk * kChunk + 8 * (lane % 4);
    w[chunk] = {};
    if (n < p.N && k < p.K)
      w[chunk] = __ldg(reinterpret_cast<const uint4*>(p.w + n * p.w_stride + k));
  }
  pdl_wait();
  ChunkOfX x[kChunks];
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) x[chunk] = load_x<kTwoHalves>(p, chunk, lane);
  FragmentC sums[2];
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) multiply_chunk(sums, x[chunk], w[chunk]);
  store_outputs(p, n0, lane, total(sums));
}

}  // namespace k3::cuda
