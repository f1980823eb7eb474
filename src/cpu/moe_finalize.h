// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_finalize.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void moe_finalize(const MoeFinalizeProblem& problem, const Target& target);

}  // namespace k3::cpu
