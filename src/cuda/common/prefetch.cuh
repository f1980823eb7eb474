// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Hints to bring global memory into the L2. They read nothing and order nothing: a line that its
/// writer changes afterwards is changed in the L2 too. So they may stand before `pdl_wait`, and the
/// address may be a guess, as long as it is mapped.
namespace k3::cuda {

/// One line.
__device__ inline void prefetch_l2(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/// `at` and `bytes` are multiples of 16.
__device__ inline void prefetch_l2(const void* at, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes));
}

/// A load that a predecessor grid may race with: for guesses only. Not kept in the L1, so that the
/// load after `pdl_wait` sees the final value.
__device__ inline std::int32_t load_guess(const std::int32_t* at) {
  std::int32_t value;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(at));
  return value;
}

}  // namespace k3::cuda
