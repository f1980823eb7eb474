// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_chunk_inverse.h"
#include "dispatch/kernel.h"

namespace k3::cuda {

/// Runs on `target.device` in `target.stream` and returns after the launch. @throws CudaError
void kda_chunk_inverse(const KdaChunkInverseProblem& problem, const Target& target);

}  // namespace k3::cuda
