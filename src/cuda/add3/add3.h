// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/add3.h"
#include "dispatch/kernel.h"

/// The CUDA variants of add3. Each runs on `target.device` in `target.stream` and returns after the
/// launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses; 8-byte ones for small problems.
void add3_vec8(const Add3Problem& problem, const Target& target);
const char* add3_vec8_refusal(const Add3Problem& problem, const Target& target);

/// 2-byte accesses: any row length, stride and base.
void add3_scalar(const Add3Problem& problem, const Target& target);

}  // namespace k3::cuda
