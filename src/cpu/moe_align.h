// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_align.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void moe_align(const MoeAlignProblem& problem, const Target& target);

}  // namespace k3::cpu
