// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_replay_commit.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void kda_replay_commit(const KdaReplayCommitProblem& problem, const Target& target);

}  // namespace k3::cpu
