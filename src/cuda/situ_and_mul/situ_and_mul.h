// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/situ_and_mul.h"
#include "dispatch/kernel.h"

/// The CUDA variants of situ_and_mul. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses; 8-byte ones for small problems.
void situ_and_mul_vec8(const SituAndMulProblem& problem, const Target& target);
const char* situ_and_mul_vec8_refusal(const SituAndMulProblem& problem, const Target& target);

/// 2-byte accesses: any D, stride and base.
void situ_and_mul_scalar(const SituAndMulProblem& problem, const Target& target);

}  // namespace k3::cuda
