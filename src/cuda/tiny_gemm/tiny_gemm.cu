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
  p.pairs = rows_aligned(problem.out, problem.out_dtype, 2 * size_of(problem.out_dtype),
                         problem.out_stride);
  return p;
}

bool is_empty(const TinyGemmProblem& problem) { return problem.M == 0 || problem.N == 0; }

unsigned groups_of(int n, int size) { return static_cast<unsigned>((n - 1) / size + 1); }

/// What both tensor-core variants ask.
const char* tile_refusal(const TinyGemmProblem& p) {
  if (p.K % 8 != 0) return "K is not a multiple of 8";
  // The stride of a single row means nothing.
  if (!rows_aligned(p.x, DType::kBF16, 16, p.M > 1 ? p.x_stride : 0))
    return "rows of x are not aligned to 16 bytes";
  if (!rows_aligned(p.w, DType::kBF16, 16, p.N > 1 ? p.w_stride : 0))
    return "rows of w are not aligned to 16 bytes";
  return nullptr;
}

template <int kChunks>
cudaError_t launch_columns(const TinyGemmParams& p, LaunchConfig config) {
  config.grid = dim3(groups_of(p.N, kTileRows * kColumnsWarps));
  config.block = dim3(32 * kColumnsWarps);
  return p.M > 8 ? launch(tiny_gemm_columns_kernel<kChunks, true>, config, p)
                 : launch(tiny_gemm_columns_kernel<kChunks, false>, config, p);
}

cudaError_t launch_columns(const TinyGemmParams& p, const LaunchConfig& config) {
  if (p.K <= 64) return launch_columns<2>(p, config);
  return p.K <= 128 ? launch_columns<4>(p, config) : launch_columns<8>(p, config);
}

/// What a CTA may take of an SM's shared memory so that one of the next launch fits beside it: 228
/// KB are there, from sm_120 on 100 KB. Less what the kernel has of its own.
int half_an_sm(int arch) { return (arch < 120 ? 113 : 49) * 1024 - 128; }

/// `most_rows` a CTA, or as many as fit `smem_bytes`. The order of sums depends on K and the
/// traits.
template <class Traits>
SplitKPlan plan_of(int K, int most_rows, int smem_bytes) {
  SplitKPlan plan;
  const int chunks = (K - 1) / kChunk + 1;
  plan.chunks_per_cta = (chunks - 1) / kSplitKCluster + 1;
  plan.chunks_per_warp = (plan.chunks_per_cta - 1) / kSplitKWarps + 1;
  // In shared memory, the sums of a warp take the place of two chunks.
  if (!Traits::kInRegisters) plan.chunks_per_warp = std::max(plan.chunks_per_warp, 2);
  plan.warps = (plan.chunks_per_cta - 1) / plan.chunks_per_warp + 1;
  plan.pitch = 4 * plan.warps * plan.chunks_per_warp + 2;
  plan.rows = most_rows;
  while (plan.rows > 2 && Traits::smem_bytes(plan) > smem_bytes) plan.rows -= 2;
  return plan;
}

template <class Traits>
cudaError_t launch_split_k(const TinyGemmParams& p, const SplitKPlan& plan, LaunchConfig config) {
  // Rows of x past the eighth get CTAs of their own where two launches of all these fit the SMs.
  constexpr unsigned kMostCtasOfHalves = 88;
  const unsigned ctas = groups_of(p.N, plan.rows) * static_cast<unsigned>(kSplitKCluster);
  const bool halves = Traits::kInRegisters && p.M > 8 && ctas <= kMostCtasOfHalves;
  config.grid = dim3(ctas, halves ? 2 : 1);
  config.block = dim3(Traits::kThreads);
  config.cluster_size = kSplitKCluster;
  config.dynamic_smem_bytes = static_cast<std::size_t>(Traits::smem_bytes(plan));
  auto* const kernel = p.M > 8 && !halves ? tiny_gemm_split_k_kernel<Traits, true>
                                          : tiny_gemm_split_k_kernel<Traits, false>;
  if (!Traits::kInRegisters) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) return error;
  }
  return launch(kernel, config, p, plan);
}

/// Whether these traits are for the problem: enough columns for the grid to keep the memory busy,
/// and rows short enough for a CTA to hold some of its last tile.
template <class Traits>
bool launches_split_k(const TinyGemmParams& p, int least_columns, int most_rows, int smem_bytes,
                      const LaunchConfig& config, cudaError_t* error) {
  const SplitKPlan plan = plan_of<Traits>(p.K, most_rows, smem_bytes);
  if (p.N < least_columns || plan.rows <= kTileColumns * (Traits::kTiles - 1)) return false;
  *error = launch_split_k<Traits>(p, plan, config);
  return true;
}

/// With 60 rows a CTA, two launches of 896 columns are 30 clusters of 8: as many as the SMs hold.
/// Nothing here depends on M, so that a row's bits do not.
cudaError_t launch_split_k(const TinyGemmParams& p, int arch, const LaunchConfig& config) {
  const int smem = half_an_sm(arch);
  cudaError_t error = cudaSuccess;
  if (!launches_split_k<SplitKTraits<4>>(p, 720, 60, smem, config, &error) &&
      !launches_split_k<SplitKTraits<2>>(p, 352, 32, smem, config, &error))
    launches_split_k<SplitKTraits<1>>(p, 0, kTileColumns, smem, config, &error);
  return error;
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
  K3_CUDA_CHECK(launch_columns(params_of(problem), launch_config(target)));
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
  K3_CUDA_CHECK(launch_split_k(params_of(problem), target.arch, launch_config(target)));
}

void tiny_gemm_general(const TinyGemmProblem& problem, const Target& target) {
  if (is_empty(problem)) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.grid = dim3(groups_of(problem.N, kGeneralThreads / 32));
  config.block = dim3(kGeneralThreads);
  K3_CUDA_CHECK(launch(tiny_gemm_general_kernel, config, params_of(problem)));
}

}  // namespace k3::cuda
