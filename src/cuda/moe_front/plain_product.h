// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/cublaslt.h"
#include "dispatch/target.h"

namespace k3::cuda {

/// The product without a library: any alignment and strides, tensor cores, no tuning.
cudaError_t launch_plain_product(const LtProduct& product, const Target& target);

}  // namespace k3::cuda
