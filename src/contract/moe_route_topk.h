// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "contract/checks.h"
#include "contract/moe_route.h"
#include "k3/ops/moe_route_topk.h"

namespace k3 {

/// A checked call: what every backend receives.
struct MoeRouteTopkProblem : MoeRouting {
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MoeRouteTopkArgs>> moe_route_topk_args();

/// @throws ContractError
MoeRouteTopkProblem check(const MoeRouteTopkArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
