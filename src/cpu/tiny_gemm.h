// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/tiny_gemm.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void tiny_gemm(const TinyGemmProblem& problem, const Target& target);

}  // namespace k3::cpu
