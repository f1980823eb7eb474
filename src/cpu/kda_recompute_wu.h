// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_recompute_wu.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void kda_recompute_wu(const KdaRecomputeWuProblem& problem, const Target& target);

}  // namespace k3::cpu
