// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_pack_topk.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void moe_pack_topk(const MoePackTopkProblem& problem, const Target& target);

}  // namespace k3::cpu
