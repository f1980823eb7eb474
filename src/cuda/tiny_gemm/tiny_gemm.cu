// SPDX-License-Identifier: Apache-2.0
#include "cuda/tiny_gemm/tiny_gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/tiny_gemm/columns.cuh"
#include "cuda/tiny_gemm/general.cuh"
#include "cuda/tiny_gemm/split_k.cuh"

namespace k3::cuda {
namespace {

constexpr int kMaxColumnsK = 256;
constexpr int kMaxSplitK = 32768;

TinyGemmParams params_of(const TinyGemmProblem& problem) {
  TinyGemmParams p;
  p.x = problem.x;
  p.w = problem.w;
  p.out = problem.out;
  p.x_stride = problem.x_stride;
  p.w_stride = problem.w_stride;
  p.out_stride = problem.out_stride;
  p.M = problem.M;
  p.N = problem.N;
  p.K = problem.K;
  p.out_is_f32 = problem.out_dtype == DType::kF32;
  return p;
}

LaunchConfig config_of(const Target& target) {
  LaunchConfig config;
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  return config;
}

bool is_empty(const TinyGemmProblem& problem) { return problem.M == 0 || problem.N == 0; }

unsigned groups_of(int n, int size) { return static_cast<unsigned>((n - 1) / size + 1); }

/// What both tensor-core variants ask.
const char* tile_refusal(const TinyGemmProblem& p) {
  if (p.K % 8 != 0) return "K is not a multiple of 8";
  if (!rows_aligned(p.x, DType::kBF16, 16, p.x_stride))
    return "rows of x are not aligned to 16 bytes";
  if (!rows_aligned(p.w, DType::kBF16, 16, p.w_stride))
    return "rows of w are not aligned to 16 bytes";
  return nullptr;
}

template <int kChunks>
cudaError_t launch_columns(const TinyGemmParams& p, LaunchConfig config) {
  constexpr int kWarps = 2;
  config.grid = dim3(groups_of(p.N, 8 * kWarps));
  config.block = dim3(32 * kWarps);
  return p.M > 8 ? launch(tiny_gemm_columns_kernel<kChunks, true>, config, p)
                 : launch(tiny_gemm_columns_kernel<kChunks, false>, config, p);
}

cudaError_t launch_columns(const TinyGemmParams& p, const LaunchConfig& config) {
  if (p.K <= 64) return launch_columns<2>(p, config);
  return p.K <= 128 ? launch_columns<4>(p, config) : launch_columns<8>(p, config);
}

template <int kTiles>
cudaError_t launch_split_k(const TinyGemmParams& p, const SplitKPlan& plan, LaunchConfig config) {
  config.grid = dim3(groups_of(p.N, 8 * kTiles) * static_cast<unsigned>(plan.cluster_size));
  config.block = dim3(static_cast<unsigned>(32 * plan.num_warps));
  config.cluster_size = static_cast<unsigned>(plan.cluster_size);
  config.dynamic_smem_bytes = split_k_smem_bytes(plan, kTiles);
  auto* const kernel =
      p.M > 8 ? tiny_gemm_split_k_kernel<kTiles, true> : tiny_gemm_split_k_kernel<kTiles, false>;
  // Room for the next launch beside this one.
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  return error != cudaSuccess ? error : launch(kernel, config, p, plan);
}

SplitKPlan plan_of(int K) {
  constexpr int kMaxWarps = 8;
  SplitKPlan plan;
  const int chunks = (K - 1) / kChunk + 1;
  plan.cluster_size = 8;
  plan.chunks_per_cta = (chunks - 1) / plan.cluster_size + 1;
  plan.chunks_per_warp = (plan.chunks_per_cta - 1) / kMaxWarps + 1;
  plan.num_warps = (plan.chunks_per_cta - 1) / plan.chunks_per_warp + 1;
  return plan;
}

/// The most tiles a CTA with which the grid still fills the GPU and two CTAs fit an SM.
int tiles_of(int N, const SplitKPlan& plan) {
  constexpr std::size_t kHalfAnSm = 112 * 1024;
  constexpr unsigned kEnoughCtas = 96;
  for (const int tiles : {7, 4, 2}) {
    const unsigned ctas = groups_of(N, 8 * tiles) * static_cast<unsigned>(plan.cluster_size);
    if (ctas >= kEnoughCtas && split_k_smem_bytes(plan, tiles) <= kHalfAnSm) return tiles;
  }
  return 1;
}

cudaError_t launch_split_k(const TinyGemmParams& p, const LaunchConfig& config) {
  const SplitKPlan plan = plan_of(p.K);
  switch (tiles_of(p.N, plan)) {
    case 7:
      return launch_split_k<7>(p, plan, config);
    case 4:
      return launch_split_k<4>(p, plan, config);
    case 2:
      return launch_split_k<2>(p, plan, config);
    default:
      return launch_split_k<1>(p, plan, config);
  }
}

}  // namespace

const char* tiny_gemm_columns_refusal(const TinyGemmProblem& problem, const Target&) {
  if (problem.K > kMaxColumnsK) return "K is above 256";
  return tile_refusal(problem);
}

void tiny_gemm_columns(const TinyGemmProblem& problem, const Target& target) {
  if (is_empty(problem)) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(launch_columns(params_of(problem), config_of(target)));
}

const char* tiny_gemm_split_k_refusal(const TinyGemmProblem& problem, const Target&) {
  if (problem.K == 0) return "K is 0";
  if (problem.K > kMaxSplitK) return "K is above 32768";
  if (problem.N > 1 << 27) return "N is above 2^27";
  return tile_refusal(problem);
}

void tiny_gemm_split_k(const TinyGemmProblem& problem, const Target& target) {
  if (is_empty(problem)) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(launch_split_k(params_of(problem), config_of(target)));
}

void tiny_gemm_general(const TinyGemmProblem& problem, const Target& target) {
  if (is_empty(problem)) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = config_of(target);
  config.grid = dim3(groups_of(problem.N, kGeneralThreads / 32));
  config.block = dim3(kGeneralThreads);
  K3_CUDA_CHECK(launch(tiny_gemm_general_kernel, config, params_of(problem)));
}

}  // namespace k3::cuda
