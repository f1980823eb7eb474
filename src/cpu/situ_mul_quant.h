// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/situ_mul_quant.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void situ_mul_quant(const SituMulQuantProblem& problem, const Target& target);

}  // namespace k3::cpu
