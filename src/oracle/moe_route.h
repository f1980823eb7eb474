// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_route.h"

namespace k3::oracle {

/// The routing of include/k3/ops/moe_route_topk.h. The sigmoid is made in double and rounded; sums
/// of scores and bias are fp32, because they decide what is equal.
void route(const MoeRouting& p);

}  // namespace k3::oracle
