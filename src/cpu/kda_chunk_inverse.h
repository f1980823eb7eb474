// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_chunk_inverse.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void kda_chunk_inverse(const KdaChunkInverseProblem& problem, const Target& target);

}  // namespace k3::cpu
