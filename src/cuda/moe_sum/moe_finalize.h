// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_finalize.h"
#include "dispatch/kernel.h"

/// The CUDA variants of moe_finalize. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses; 8-byte ones for small problems.
void moe_finalize_vec8(const MoeFinalizeProblem& problem, const Target& target);
const char* moe_finalize_vec8_refusal(const MoeFinalizeProblem& problem, const Target& target);

/// 2-byte accesses: any H, stride and base.
void moe_finalize_scalar(const MoeFinalizeProblem& problem, const Target& target);

}  // namespace k3::cuda
