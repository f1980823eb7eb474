// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/per_token_group_quant.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void per_token_group_quant(const PerTokenGroupQuantProblem& problem, const Target& target);

}  // namespace k3::cpu
