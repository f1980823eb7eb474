// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_output_norm.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void kda_output_norm(const KdaOutputNormProblem& problem, const Target& target);

}  // namespace k3::cpu
