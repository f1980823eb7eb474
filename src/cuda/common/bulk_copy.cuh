// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/mbarrier.cuh"

/// Bulk copies between global and shared memory: one thread asks, no register holds the data.
/// Addresses and sizes are multiples of 16 bytes. They go through the async proxy.
namespace k3::cuda {

/// Completes on `barrier`, armed by this thread for these bytes.
__device__ inline void bulk_load(void* to_shared, const void* from, std::uint32_t bytes,
                                 MBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to_shared)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

/// What this thread wrote to shared memory, through the generic proxy, becomes visible to bulk
/// copies, through the async proxy, that are asked for after a barrier with this thread.
__device__ inline void publish_to_bulk_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void bulk_store(void* to, const void* from_shared, std::uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(shared_address(from_shared)), "r"(bytes)
      : "memory");
}

/// Returns once this thread's bulk stores, all but the latest kPending, have read their shared
/// memory, which may then go.
template <int kPending = 0>
__device__ void wait_until_bulk_stores_have_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace k3::cuda
