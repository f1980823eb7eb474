// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_prefill.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

std::size_t kda_prefill_workspace_size(const KdaPrefillProblem& problem, const Target& target);
void kda_prefill(const KdaPrefillProblem& problem, const Target& target);

}  // namespace k3::cpu
