// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_topk_sum.h"
#include "dispatch/kernel.h"

/// The CUDA variants of moe_topk_sum. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// 8-byte accesses; 4-byte ones for small problems.
void moe_topk_sum_vec4(const MoeTopkSumProblem& problem, const Target& target);
const char* moe_topk_sum_vec4_refusal(const MoeTopkSumProblem& problem, const Target& target);

/// 2-byte accesses: any H, stride and base.
void moe_topk_sum_scalar(const MoeTopkSumProblem& problem, const Target& target);

}  // namespace k3::cuda
