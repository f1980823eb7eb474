// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

/// Programmatic dependent launch, from the kernel's side. Both are no-ops in a plain launch.
namespace k3::cuda {

/// Returns once every grid before this one in the stream has finished and its writes are visible.
/// Nothing those grids may read or write is touched before it, but what an op calls constant, read.
__device__ inline void pdl_wait() { cudaGridDependencySynchronize(); }

/// Lets the next grid of the stream be scheduled as SMs become free. Says nothing about this grid's
/// writes: the next one still waits for them with `pdl_wait`. Takes effect when every CTA has
/// called it or left.
__device__ inline void pdl_launch_dependents() { cudaTriggerProgrammaticLaunchCompletion(); }

}  // namespace k3::cuda
