// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda_fused_decode.h"
#include "contract/kda_packed_decode.h"
#include "dispatch/kernel.h"

/// The CUDA variants of kda_fused_decode and kda_packed_decode. Each runs on `target.device` in
/// `target.stream` and returns after the launch. @throws CudaError
namespace k3::cuda {

/// Four elements an access.
void kda_fused_decode_vec4(const KdaFusedDecodeProblem& problem, const Target& target);
const char* kda_fused_decode_vec4_refusal(const KdaFusedDecodeProblem& problem,
                                          const Target& target);
void kda_packed_decode_vec4(const KdaPackedDecodeProblem& problem, const Target& target);
const char* kda_packed_decode_vec4_refusal(const KdaPackedDecodeProblem& problem,
                                           const Target& target);

/// One element an access: any stride and base.
void kda_fused_decode_scalar(const KdaFusedDecodeProblem& problem, const Target& target);
void kda_packed_decode_scalar(const KdaPackedDecodeProblem& problem, const Target& target);

}  // namespace k3::cuda
