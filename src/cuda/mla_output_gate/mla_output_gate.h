// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/mla_output_gate.h"
#include "dispatch/kernel.h"

/// The CUDA variants of mla_output_gate. Each runs on `target.device` in `target.stream` and
/// returns after the launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses; 8-byte ones for small problems.
void mla_output_gate_vec8(const MlaOutputGateProblem& problem, const Target& target);
const char* mla_output_gate_vec8_refusal(const MlaOutputGateProblem& problem, const Target& target);

/// 2-byte accesses: rows of any length, stride and base.
void mla_output_gate_scalar(const MlaOutputGateProblem& problem, const Target& target);

}  // namespace k3::cuda
