// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_route_topk/moe_route_topk.h"

#include <cstdint>

#include "cuda/common/pdl.cuh"
#include "cuda/moe/launch.h"
#include "cuda/moe/route.cuh"
#include "cuda/moe/route_general.cuh"

namespace k3::cuda {
namespace {

/// Token first_token + blockIdx.x.
template <class Score, bool kBoundOnce>
__global__ __launch_bounds__(moe::kRouteThreads) void route_16_of_896_kernel(
    const __grid_constant__ MoeRouting p, std::int64_t first_token) {
  __shared__ moe::RouteShared s;
  pdl_launch_dependents();
  const std::int64_t token = first_token + blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  moe::prefetch_scores<Score>(p, token, thread);
  pdl_wait();
  moe::route_token<Score, kBoundOnce>(p, token, s, thread);
}

/// Past one CTA an SM the chip's instruction rate counts, before it a token's latency.
constexpr std::int64_t kFewTokens = 128;

using RouteKernel = void (*)(MoeRouting, std::int64_t);

template <class Score>
RouteKernel kernel_16_of_896(std::int64_t num_tokens) {
  return num_tokens > kFewTokens ? route_16_of_896_kernel<Score, true>
                                 : route_16_of_896_kernel<Score, false>;
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
  moe::launch_over_tokens(p.num_tokens, moe::kRouteThreads, 0, target,
                          p.scores_dtype == DType::kBF16 ? kernel_16_of_896<bf16>(p.num_tokens)
                                                         : kernel_16_of_896<float>(p.num_tokens),
                          static_cast<const MoeRouting&>(p));
}

void moe_route_topk_general(const MoeRouteTopkProblem& p, const Target& target) {
  constexpr int kMostCached = 10240;  // 40 KB of keys beside the other shared memory
  const bool keys_cached = p.num_experts <= kMostCached;
  const std::size_t smem_bytes =
      keys_cached ? static_cast<std::size_t>(p.num_experts) * sizeof(std::uint32_t) : 0;
  moe::launch_over_tokens(p.num_tokens, moe::kGeneralThreads, smem_bytes, target,
                          p.scores_dtype == DType::kBF16 ? general_kernel<bf16>(keys_cached)
                                                         : general_kernel<float>(keys_cached),
                          static_cast<const MoeRouting&>(p));
}

void moe_route_topk_any(const MoeRouteTopkProblem& p, const Target& target) {
  if (moe_route_topk_16_of_896_refusal(p, target) == nullptr)
    moe_route_topk_16_of_896(p, target);
  else
    moe_route_topk_general(p, target);
}

}  // namespace k3::cuda
