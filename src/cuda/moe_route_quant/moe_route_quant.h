// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_route_quant.h"
#include "dispatch/kernel.h"

/// The CUDA variants of moe_route_quant. Each runs on `target.device` in `target.stream` and
/// returns after its launches. @throws CudaError
namespace k3::cuda {

/// A CTA a token: warps that route beside warps that quantise.
void moe_route_quant_one_launch(const MoeRouteQuantProblem& problem, const Target& target);
const char* moe_route_quant_one_launch_refusal(const MoeRouteQuantProblem& problem,
                                               const Target& target);

/// The kernels of moe_route_topk and per_token_group_quant.
void moe_route_quant_two_launches(const MoeRouteQuantProblem& problem, const Target& target);

}  // namespace k3::cuda
