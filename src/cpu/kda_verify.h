// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_verify.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void kda_verify(const KdaVerifyProblem& problem, const Target& target);

}  // namespace k3::cpu
