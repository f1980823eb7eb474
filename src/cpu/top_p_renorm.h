// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/top_p_renorm.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void top_p_renorm(const TopPRenormProblem& problem, const Target& target);

}  // namespace k3::cpu
