// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_pack_topk.h"
#include "dispatch/kernel.h"

/// The CUDA variants of moe_pack_topk. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses.
void moe_pack_topk_vec4(const MoePackTopkProblem& problem, const Target& target);
const char* moe_pack_topk_vec4_refusal(const MoePackTopkProblem& problem, const Target& target);

/// An element at a time: any length, stride and base.
void moe_pack_topk_scalar(const MoePackTopkProblem& problem, const Target& target);

}  // namespace k3::cuda
