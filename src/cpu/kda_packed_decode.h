// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_packed_decode.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void kda_packed_decode(const KdaPackedDecodeProblem& problem, const Target& target);

}  // namespace k3::cpu
