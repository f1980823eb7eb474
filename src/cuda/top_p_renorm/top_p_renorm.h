// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/top_p_renorm.h"
#include "dispatch/kernel.h"

/// The CUDA variants of top_p_renorm. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses.
void top_p_renorm_vec4(const TopPRenormProblem& problem, const Target& target);
const char* top_p_renorm_vec4_refusal(const TopPRenormProblem& problem, const Target& target);

/// 4-byte accesses: any V, stride and base.
void top_p_renorm_scalar(const TopPRenormProblem& problem, const Target& target);

}  // namespace k3::cuda
