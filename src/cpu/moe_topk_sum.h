// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_topk_sum.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void moe_topk_sum(const MoeTopkSumProblem& problem, const Target& target);

}  // namespace k3::cpu
