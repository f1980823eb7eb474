// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/common/mbarrier.cuh"

/// Thread block clusters: their barrier, and stores to another CTA's shared memory. Every thread of
/// the cluster takes part in each barrier.
namespace k3::cuda {

/// Says that this thread has come here, and orders no memory: an arrival with release semantics
/// waits for every access still on its way. Loads whose values have been used are over in any case.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// What threads of the cluster wrote to shared memory before is seen by all of them after.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

/// The address of the variable at the same place in CTA `rank` of the cluster.
__device__ inline std::uint32_t shared_address(const void* own, int rank) {
  std::uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(own)), "r"(rank));
  return remote;
}

/// The variable at the same place in CTA `rank`, which must not have left.
__device__ inline std::uint32_t load_remote(const std::uint32_t* own, int rank) {
  std::uint32_t value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];"
               : "=r"(value)
               : "r"(shared_address(own, rank))
               : "memory");
  return value;
}
__device__ inline std::uint64_t load_remote(const std::uint64_t* own, int rank) {
  std::uint64_t value;
  asm volatile("ld.shared::cluster.u64 %0, [%1];"
               : "=l"(value)
               : "r"(shared_address(own, rank))
               : "memory");
  return value;
}

/// A barrier that counts bytes: armed by its CTA, completed by what others send to it. For a
/// further phase its CTA calls `mbarrier_expect` after the last one; what is sent may come before
/// that.
using ByteBarrier = std::uint64_t;

/// One thread; before a barrier that its users pass.
__device__ inline void arm(ByteBarrier* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n"
      "fence.mbarrier_init.release.cluster;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Sends a value to the same place in CTA `rank`, which must have armed its barrier and stays until
/// it has waited for it. Each counts on the barrier by itself, so few large ones are better than
/// many small ones. Illegal in a launch without clusters, one of single CTAs included.
__device__ inline void send(float* own, ByteBarrier* barrier, int rank, float value) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                   shared_address(own, rank)),
               "f"(value), "r"(shared_address(barrier, rank))
               : "memory");
}
/// Aligned to its 16 bytes.
__device__ inline void send(float4* own, ByteBarrier* barrier, int rank, float4 value) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(shared_address(own, rank)),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(shared_address(barrier, rank))
      : "memory");
}

/// Returns once all bytes of the phase are here; the first phase has parity 0.
__device__ inline void wait(ByteBarrier* barrier, unsigned parity = 0) {
  std::uint32_t done = 0;
  while (done == 0)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

}  // namespace k3::cuda
