// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/per_token_group_quant.h"
#include "dispatch/kernel.h"

/// The CUDA variants of per_token_group_quant. Each runs on `target.device` in `target.stream` and
/// returns after the launch. @throws CudaError
namespace k3::cuda {

/// 16 values a lane, 1 to 16 lanes a group.
void per_token_group_quant_vec16(const PerTokenGroupQuantProblem& problem, const Target& target);
const char* per_token_group_quant_vec16_refusal(const PerTokenGroupQuantProblem& problem,
                                                const Target& target);

/// A warp per group, one value an access: any group size, stride and base.
void per_token_group_quant_warp_per_group(const PerTokenGroupQuantProblem& problem,
                                          const Target& target);

}  // namespace k3::cuda
