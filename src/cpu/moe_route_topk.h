// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_route_topk.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

/// The routing of every op that routes.
void moe_route(const MoeRouting& routing, const Target& target);

void moe_route_topk(const MoeRouteTopkProblem& problem, const Target& target);

}  // namespace k3::cpu
