// SPDX-License-Identifier: Apache-2.0

// The two ops one behind the other: a core has no second one waiting for the router.

#include "cpu/moe_route_quant.h"

#include "cpu/moe_route_topk.h"
#include "cpu/per_token_group_quant.h"

namespace k3::cpu {

void moe_route_quant(const MoeRouteQuantProblem& p, const Target& target) {
  moe_route(p.routing, target);
  per_token_group_quant(p.quant, target);
}

}  // namespace k3::cpu
