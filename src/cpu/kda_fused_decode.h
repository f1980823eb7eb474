// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_fused_decode.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void kda_fused_decode(const KdaFusedDecodeProblem& problem, const Target& target);

}  // namespace k3::cpu
