// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/moe_align.h"
#include "dispatch/kernel.h"

/// The CUDA variants of moe_align. Each runs on `target.device` in `target.stream` and returns
/// after its launches. @throws CudaError
namespace k3::cuda {

/// One CTA.
void moe_align_one_token(const MoeAlignProblem& problem, const Target& target);
const char* moe_align_one_token_refusal(const MoeAlignProblem& problem, const Target& target);

/// One launch, whose CTAs all see all slots.
void moe_align_one_launch(const MoeAlignProblem& problem, const Target& target);
const char* moe_align_one_launch_refusal(const MoeAlignProblem& problem, const Target& target);

/// Three launches: counts of each chunk of slots, their sums, slots to their places.
void moe_align_three_launches(const MoeAlignProblem& problem, const Target& target);
const char* moe_align_three_launches_refusal(const MoeAlignProblem& problem, const Target& target);
std::size_t moe_align_three_launches_workspace_size(const MoeAlignProblem& problem,
                                                    const Target& target);

}  // namespace k3::cuda
