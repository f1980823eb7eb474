// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/mla_block_table.h"
#include "dispatch/kernel.h"

namespace k3::cuda {

/// Runs on `target.device` in `target.stream` and returns after the launch. @throws CudaError
void mla_block_table(const MlaBlockTableProblem& problem, const Target& target);

}  // namespace k3::cuda
