// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/wgmma.cuh"
#include "cuda/device.h"
#include "harness/cuda_timing.h"
#include "harness/device.h"

/// The rates that bench rows are held against, each measured with the simplest kernel that reaches
/// it.
namespace k3::harness {
namespace {

constexpr int kNumThreads = 256;

__global__ void empty_kernel() {
  cuda::pdl_launch_dependents();
  cuda::pdl_wait();
}

/// x <- -x over fp32 words: 16 bytes read and written by each thread.
__global__ __launch_bounds__(kNumThreads) void negate_in_place(uint4* x) {
  cuda::pdl_launch_dependents();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kNumThreads + threadIdx.x;
  cuda::pdl_wait();
  constexpr unsigned kSign = 0x80000000U;
  const uint4 v = x[i];
  __stcs(x + i, uint4{v.x ^ kSign, v.y ^ kSign, v.z ^ kSign, v.w ^ kSign});
}

constexpr int kFmaChains =
    8;  // independent chains per thread: more than latency times issue rate asks
constexpr int kFmaSteps = 4096;

__global__ __launch_bounds__(kNumThreads) void fma_chains(float* out, float a, float b) {
  float x[kFmaChains];
#pragma unroll
  for (int c = 0; c < kFmaChains; ++c) x[c] = static_cast<float>(threadIdx.x + c);
#pragma unroll 8
  for (int step = 0; step < kFmaSteps; ++step) {
#pragma unroll
    for (int c = 0; c < kFmaChains; ++c) x[c] = fmaf(x[c], a, b);
  }
  float sum = 0.0F;
#pragma unroll
  for (int c = 0; c < kFmaChains; ++c) sum += x[c];
  out[static_cast<std::int64_t>(blockIdx.x) * kNumThreads + threadIdx.x] = sum;
}

constexpr int kWarpgroup = 128;  // threads
constexpr int kProductSteps = 512;
constexpr double kStepFlops = 2.0 * 64 * 128 * 16;  // of a warpgroup

/// Two bf16 numbers of either sign in [0.5, 1): what tensor cores draw depends on what they
/// multiply.
__device__ std::uint32_t some_pair(std::uint32_t i) {
  return (i * 0x9E3779B9U & 0x807F807FU) | 0x3F003F00U;
}

/// In each step [64 x 16] times [16 x 128], by a warpgroup where there are such products, else by
/// its warps.
__global__ __launch_bounds__(kWarpgroup) void product_chains(float* out) {
  alignas(1024) __shared__ std::uint32_t right[1024];  // two tiles of 16 rows of 128 bytes
  for (unsigned i = threadIdx.x; i < 1024; i += kWarpgroup) right[i] = some_pair(i);
  cuda::FragmentA left;
  for (unsigned i = 0; i < 4; ++i) left.a[i] = some_pair(4 * threadIdx.x + i);
  cuda::FragmentC sums[16] = {};
  __syncthreads();
#ifdef K3_HAS_WGMMA
  constexpr std::uint32_t kTileBytes = 2048;
  cuda::publish_to_bulk_copies();  // `right`, to the products, which go the same way
  __syncthreads();
  const std::uint64_t rows = cuda::describe_rows(cuda::shared_address(right), 0, kTileBytes);
#pragma unroll 1
  for (int step = 0; step < kProductSteps; step += 4) {
    cuda::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) cuda::issue_by_rows<true>(sums, left, rows);
    cuda::wgmma_commit();
    cuda::wgmma_wait<0>();
  }
#else
  const std::uint32_t b0 = right[threadIdx.x % 32];
  const std::uint32_t b1 = right[threadIdx.x % 32 + 32];
#pragma unroll 1
  for (int step = 0; step < kProductSteps; ++step) {
#pragma unroll
    for (cuda::FragmentC& sum : sums) cuda::multiply_add(sum, left, b0, b1);
  }
#endif
  float total = 0.0F;
  for (const cuda::FragmentC& sum : sums)
    for (const float x : sum.c) total += x;
  out[static_cast<std::int64_t>(blockIdx.x) * kWarpgroup + threadIdx.x] = total;
}

cuda::LaunchConfig config_for(unsigned grid, cudaStream_t stream, int threads = kNumThreads) {
  cuda::LaunchConfig config;
  config.grid = dim3(grid);
  config.block = dim3(static_cast<unsigned>(threads));
  config.pdl = true;
  config.stream = stream;
  return config;
}

}  // namespace

Ceilings measure_cuda_ceilings() {
  int device = 0;
  K3_CUDA_CHECK(cudaGetDevice(&device));
  Ceilings ceilings;

  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const CudaBuffer buffer(kBytes);
  K3_CUDA_CHECK(cudaMemset(buffer.data(), 0x3C, kBytes));
  const Timing scale = time_in_graphs(1, [&](int, cudaStream_t stream) {
    constexpr auto kGrid = static_cast<unsigned>(kBytes / sizeof(uint4) / kNumThreads);
    K3_CUDA_CHECK(cuda::launch(negate_in_place, config_for(kGrid, stream),
                               reinterpret_cast<uint4*>(buffer.data())));
  });
  ceilings.read_write_gbps = 2.0 * static_cast<double>(kBytes) / scale.median_us * 1e-3;

  const auto grid = static_cast<unsigned>(cuda::properties(device).num_sms) * 8;
  const Timing fma = time_in_graphs(1, [&](int, cudaStream_t stream) {
    K3_CUDA_CHECK(cuda::launch(fma_chains, config_for(grid, stream),
                               reinterpret_cast<float*>(buffer.data()), 0.999F, 0.001F));
  });
  const double flops = 2.0 * grid * kNumThreads * kFmaChains * kFmaSteps;
  ceilings.fma_gflops = flops / fma.median_us * 1e-3;

  const Timing products = time_in_graphs(1, [&](int, cudaStream_t stream) {
    K3_CUDA_CHECK(cuda::launch(product_chains, config_for(grid, stream, kWarpgroup),
                               reinterpret_cast<float*>(buffer.data())));
  });
  ceilings.tensor_gflops = grid * kProductSteps * kStepFlops / products.median_us * 1e-3;

  const Timing empty = time_in_graphs(1, [&](int, cudaStream_t stream) {
    K3_CUDA_CHECK(cuda::launch(empty_kernel, config_for(1, stream)));
  });
  ceilings.empty_launch_us = empty.median_us;
  return ceilings;
}

}  // namespace k3::harness
