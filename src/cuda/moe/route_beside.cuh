// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/pdl.cuh"
#include "cuda/moe/route.cuh"

/// A CTA a token: the first four warps route it, the others do the rest of its row meanwhile. The
/// two parts share nothing.
namespace k3::cuda::moe {

inline constexpr int kRowThreads = 128;  ///< of the other part

/// Token first_token + blockIdx.x. `row(token, thread)` is called by kRowThreads threads, whole
/// warps of them.
template <class Score, class Row>
__global__ __launch_bounds__(kRouteThreads + kRowThreads) void route_beside_kernel(
    const __grid_constant__ MoeRouting p, const __grid_constant__ Row row,
    std::int64_t first_token) {
  __shared__ RouteShared s;
  pdl_launch_dependents();
  const std::int64_t token = first_token + blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kRouteThreads) {
    prefetch_scores<Score>(p, token, thread);
    pdl_wait();
    route_token<Score>(p, token, s, thread);
  } else {
    pdl_wait();
    row(token, thread - kRouteThreads);
  }
}

}  // namespace k3::cuda::moe
