// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_output_norm.h"
#include "dispatch/kernel.h"

/// The CUDA variants of kda_output_norm. Each runs on `target.device` in `target.stream` and
/// returns after the launch. @throws CudaError
namespace k3::cuda {

/// Four elements an access.
void kda_output_norm_vec4(const KdaOutputNormProblem& problem, const Target& target);
const char* kda_output_norm_vec4_refusal(const KdaOutputNormProblem& problem, const Target& target);

/// One element an access: any stride and base.
void kda_output_norm_scalar(const KdaOutputNormProblem& problem, const Target& target);

}  // namespace k3::cuda
