// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/pdl.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/tiny_gemm/tile.cuh"

/// Any call of the contract: a warp makes one column, lane i the products of k = i, i + 32, ...
namespace k3::cuda {

inline constexpr int kGeneralThreads = 256;

__global__ __launch_bounds__(kGeneralThreads) void tiny_gemm_general_kernel(
    const __grid_constant__ TinyGemmParams p) {
  pdl_launch_dependents();
  pdl_wait();
  const int lane = threadIdx.x % 32;
  const std::int64_t n =
      std::int64_t{blockIdx.x} * (kGeneralThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  if (n >= p.N) return;
  const auto* const x = reinterpret_cast<const std::uint16_t*>(p.x);
  const auto* const w = reinterpret_cast<const std::uint16_t*>(p.w) + n * p.w_stride;
  float sums[kTinyGemmMaxRows] = {};
  for (std::int64_t k = lane; k < p.K; k += 32) {
    const float weight = unpack_bf16(w[k]).x;
#pragma unroll
    for (int m = 0; m < kTinyGemmMaxRows; ++m)
      if (m < p.M) sums[m] = fmaf(unpack_bf16(x[m * p.x_stride + k]).x, weight, sums[m]);
  }
#pragma unroll
  for (int m = 0; m < kTinyGemmMaxRows; ++m) {
    const float sum = warp::sum(sums[m]);
    if (lane == 0 && m < p.M) store_output(p, m * p.out_stride + n, sum);
  }
}

}  // namespace k3::cuda
