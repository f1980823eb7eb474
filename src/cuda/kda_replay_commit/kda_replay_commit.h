// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_replay_commit.h"
#include "dispatch/kernel.h"

/// The CUDA variants of kda_replay_commit. Each runs on `target.device` in `target.stream` and
/// returns after the launch. @throws CudaError
namespace k3::cuda {

/// Four elements an access.
void kda_replay_commit_vec4(const KdaReplayCommitProblem& problem, const Target& target);
const char* kda_replay_commit_vec4_refusal(const KdaReplayCommitProblem& problem,
                                           const Target& target);

/// One element an access: any stride and base.
void kda_replay_commit_scalar(const KdaReplayCommitProblem& problem, const Target& target);
const char* kda_replay_commit_scalar_refusal(const KdaReplayCommitProblem& problem,
                                             const Target& target);

}  // namespace k3::cuda
