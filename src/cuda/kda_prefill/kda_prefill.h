// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "contract/kda_prefill.h"
#include "dispatch/kernel.h"

/// CUDA kernels of kda_prefill; docs/kda_prefill.md.
namespace k3::cuda {

/// Null where the call fits the kernels' indices; else the reason why not.
const char* kda_prefill_refusal(const KdaPrefillProblem& problem, const Target& target);
std::size_t kda_prefill_workspace_size(const KdaPrefillProblem& problem, const Target& target);
void kda_prefill_wgmma(const KdaPrefillProblem& problem, const Target& target);  ///< sm_90a
void kda_prefill_mma_sync(const KdaPrefillProblem& problem, const Target& target);

}  // namespace k3::cuda
