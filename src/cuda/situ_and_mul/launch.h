// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "contract/situ_and_mul.h"

namespace k3::cuda {

/// `kVec` is 8, 4 or 1. Problems past 2^31 vectors take several launches.
template <int kVec>
cudaError_t launch_situ_and_mul(const SituAndMulProblem& problem, bool pdl, cudaStream_t stream);

}  // namespace k3::cuda
