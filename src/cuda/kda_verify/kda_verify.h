// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_verify.h"
#include "dispatch/kernel.h"

/// The CUDA variants of kda_verify. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// Four elements an access. The first lets the library choose between the three others.
void kda_verify_vec4(const KdaVerifyProblem& problem, const Target& target);
void kda_verify_split(const KdaVerifyProblem& problem, const Target& target);
void kda_verify_wide(const KdaVerifyProblem& problem, const Target& target);
void kda_verify_narrow(const KdaVerifyProblem& problem, const Target& target);
const char* kda_verify_vec4_refusal(const KdaVerifyProblem& problem, const Target& target);

/// One element an access: any stride and base.
void kda_verify_scalar(const KdaVerifyProblem& problem, const Target& target);

}  // namespace k3::cuda
