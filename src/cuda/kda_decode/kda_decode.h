// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_fused_decode.h"
#include "dispatch/kernel.h"

/// The CUDA variants of kda_fused_decode and kda_packed_decode. Each runs on `target.device` in
/// `target.stream` and returns after the launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses to fp32, 8-byte ones to bf16.
void kda_fused_decode_vec4(const KdaFusedDecodeProblem& problem, const Target& target);
const char* kda_fused_decode_vec4_refusal(const KdaFusedDecodeProblem& problem,
                                          const Target& target);

/// One access an element: any stride and base.
void kda_fused_decode_scalar(const KdaFusedDecodeProblem& problem, const Target& target);
const char* kda_fused_decode_scalar_refusal(const KdaFusedDecodeProblem& problem,
                                            const Target& target);

}  // namespace k3::cuda
