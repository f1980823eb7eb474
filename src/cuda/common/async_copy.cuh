// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Copies of a thread from global to shared memory that no register holds on the way.
namespace k3::cuda {

/// 16 bytes, both ends aligned to them; zeros, and nothing read, unless `exists`.
__device__ inline void copy_async_16(std::uint32_t to_shared, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}

/// Returns once all that this thread asked for has arrived; others see it after a barrier.
__device__ inline void wait_for_async_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Makes what this thread has asked for since the last call a group.
__device__ inline void commit_async_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Returns once this thread's groups, all but the latest kPending, have arrived.
template <int kPending>
__device__ void wait_for_async_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace k3::cuda
