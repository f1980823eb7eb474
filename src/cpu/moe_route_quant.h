// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_route_quant.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void moe_route_quant(const MoeRouteQuantProblem& problem, const Target& target);

}  // namespace k3::cpu
