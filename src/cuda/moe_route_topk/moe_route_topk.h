// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_route_topk.h"
#include "dispatch/kernel.h"

/// The CUDA variants of moe_route_topk. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// 896 experts, topk 16: four warps a token.
void moe_route_topk_16_of_896(const MoeRouteTopkProblem& problem, const Target& target);
const char* moe_route_topk_16_of_896_refusal(const MoeRouteTopkProblem& problem, const Target&);

/// Any number of experts.
void moe_route_topk_general(const MoeRouteTopkProblem& problem, const Target& target);

/// The first of the two that serves the call: for the ops of which routing is a part.
void moe_route_topk_any(const MoeRouteTopkProblem& problem, const Target& target);

}  // namespace k3::cuda
