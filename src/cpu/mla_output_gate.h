// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/mla_output_gate.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void mla_output_gate(const MlaOutputGateProblem& problem, const Target& target);

}  // namespace k3::cpu
