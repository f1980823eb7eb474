// SPDX-License-Identifier: Apache-2.0
#pragma once


#include "contract/kda_fused_decode.h"
#include "contract/kda_prefill.h"
#include "contract/situ_and_mul.h"
#include "dispatch/kernel.h"

/// The CPU variants of each op. Each function stands at the bottom of src/cpu/<op>.cpp.
namespace k3::cpu {

std::size_t kda_prefill_workspace_size(const KdaPrefillProblem& problem, const Target& target);
void kda_prefill(const KdaPrefillProblem& problem, const Target& target);

void kda_fused_decode(const KdaFusedDecodeProblem& problem, const Target& target);

void situ_and_mul(const SituAndMulProblem& problem, const Target& target);

}  // namespace k3::cpu
