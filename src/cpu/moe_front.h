// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "contract/moe_front.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

/// The workspace holds the logits.
void moe_front(const MoeFrontProblem& problem, const Target& target);
std::size_t moe_front_workspace_size(const MoeFrontProblem& problem, const Target& target);

void moe_front_epilogue(const MoeFrontEpilogueProblem& problem, const Target& target);

}  // namespace k3::cpu
