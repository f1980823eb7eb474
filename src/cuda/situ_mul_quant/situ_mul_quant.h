// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/situ_mul_quant.h"
#include "dispatch/kernel.h"

/// The CUDA variants of situ_mul_quant. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// CTAs share out the live rows; 16 outputs a lane, 8 lanes a group.
void situ_mul_quant_live_rows(const SituMulQuantProblem& problem, const Target& target);
const char* situ_mul_quant_live_rows_refusal(const SituMulQuantProblem& problem,
                                             const Target& target);

/// A warp per group, one value an access: any number of experts, stride and base.
void situ_mul_quant_warp_per_group(const SituMulQuantProblem& problem, const Target& target);

}  // namespace k3::cuda
