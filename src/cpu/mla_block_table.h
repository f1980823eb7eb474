// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/mla_block_table.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void mla_block_table(const MlaBlockTableProblem& problem, const Target& target);

}  // namespace k3::cpu
