// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/situ_and_mul.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void situ_and_mul(const SituAndMulProblem& problem, const Target& target);

}  // namespace k3::cpu
