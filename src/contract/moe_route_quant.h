// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "contract/checks.h"
#include "contract/moe_route_topk.h"
#include "contract/per_token_group_quant.h"
#include "k3/ops/moe_route_quant.h"

namespace k3 {

/// A checked call: what every backend receives.
struct MoeRouteQuantProblem {
  MoeRouteTopkProblem routing;
  PerTokenGroupQuantProblem quant;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MoeRouteQuantArgs>> moe_route_quant_args();

/// @throws ContractError
MoeRouteQuantProblem check(const MoeRouteQuantArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
