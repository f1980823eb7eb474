// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

/// Barriers among warps of a CTA that do different work. What a thread has written before it
/// arrives is seen by those that wait.
namespace k3::cuda {

/// An address in shared memory as instructions name it.
__device__ inline std::uint32_t shared_address(const void* own) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
}

/// In shared memory. Completes its phases 0, 1, 2, ... one after the other, each once as many
/// threads have arrived as it was made for.
using MBarrier = std::uint64_t;

/// One thread; before a barrier that all users pass.
__device__ inline void mbarrier_init(MBarrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

/// The same thread, after its barriers: bulk copies, which do not pass barriers, see them made.
__device__ inline void mbarrier_publish_inits() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive(MBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// Arrives for `count` threads at once.
__device__ inline void mbarrier_arrive(MBarrier* barrier, unsigned count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(count)
               : "memory");
}

/// Arrives, and lets the phase wait for so many bytes of bulk copies, too.
__device__ inline void mbarrier_expect(MBarrier* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Whether the latest phase of that parity is complete; for parity 1 of a new barrier, yes.
__device__ inline bool mbarrier_test(MBarrier* barrier, unsigned parity) {
  std::uint32_t done = 0;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

/// Returns once it is.
__device__ inline void mbarrier_wait(MBarrier* barrier, unsigned parity) {
  std::uint32_t done = 0;
  while (done == 0)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

/// The barriers that the hardware numbers, 1 to 15 (0 is __syncthreads): `threads` of them meet.
__device__ inline void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Moves registers between the warpgroups of a CTA; every warp of a warpgroup calls it. The kernel
/// needs launch bounds with a number of CTAs.
template <int kRegisters>
__device__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace k3::cuda
