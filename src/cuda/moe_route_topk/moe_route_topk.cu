// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_route_topk/moe_route_topk.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/moe/route.cuh"
#include "cuda/moe/route_general.cuh"

namespace k3::cuda {
namespace {

/// Token first_token + blockIdx.x.
template <class Score>
__global__ __launch_bounds__(moe::kRouteThreads) void route_16_of_896_kernel(
    const __grid_constant__ MoeRouting p, std::int64_t first_token) {
  __shared__ moe::RouteShared s;
  pdl_launch_dependents();
  const std::int64_t token = first_token + blockIdx.x;
  const Score* const scores = static_cast<const Score*>(p.scores) + token * p.scores_stride;
  moe::prefetch_row(scores, moe::kExperts * sizeof(Score), threadIdx.x);
  moe::prefetch_row(p.bias, moe::kExperts * sizeof(float), threadIdx.x);
  pdl_wait();
  moe::route_token<Score>(p, token, s, static_cast<int>(threadIdx.x), 1);
}

using RouteKernel = void (*)(MoeRouting, std::int64_t);

/// One CTA a token; past 2^31 of them, several launches.
void launch_per_token(RouteKernel kernel, unsigned threads, std::size_t smem_bytes,
                      const MoeRouting& p, const Target& target) {
  constexpr std::int64_t kMaxGrid = (std::int64_t{1} << 31) - 1;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  for (std::int64_t first = 0; first < p.num_tokens; first += kMaxGrid) {
    LaunchConfig config;
    config.grid = dim3(static_cast<unsigned>(std::min(kMaxGrid, p.num_tokens - first)));
    config.block = dim3(threads);
    config.dynamic_smem_bytes = smem_bytes;
    config.pdl = target.pdl;
    config.stream = static_cast<cudaStream_t>(target.stream);
    K3_CUDA_CHECK(launch(kernel, config, p, first));
  }
}

template <class Score>
RouteKernel general_kernel(bool keys_cached) {
  return keys_cached ? moe::route_general_kernel<Score, true>
                     : moe::route_general_kernel<Score, false>;
}

}  // namespace

const char* moe_route_topk_16_of_896_refusal(const MoeRouteTopkProblem& p, const Target&) {
  if (p.num_experts != moe::kExperts) return "the number of experts is not 896";
  if (p.options.topk != moe::kTopk) return "topk is not 16";
  return nullptr;
}

void moe_route_topk_16_of_896(const MoeRouteTopkProblem& p, const Target& target) {
  launch_per_token(
      p.scores_dtype == DType::kBF16 ? route_16_of_896_kernel<bf16> : route_16_of_896_kernel<float>,
      moe::kRouteThreads, 0, p, target);
}

void moe_route_topk_general(const MoeRouteTopkProblem& p, const Target& target) {
  constexpr int kMostCached = 10240;  // 40 KB of keys beside the other shared memory
  const bool keys_cached = p.num_experts <= kMostCached;
  const std::size_t smem_bytes =
      keys_cached ? static_cast<std::size_t>(p.num_experts) * sizeof(std::uint32_t) : 0;
  launch_per_token(p.scores_dtype == DType::kBF16 ? general_kernel<bf16>(keys_cached)
                                                  : general_kernel<float>(keys_cached),
                   moe::kGeneralThreads, smem_bytes, p, target);
}

}  // namespace k3::cuda
