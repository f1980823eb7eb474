// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "contract/kda_fused_decode.h"
#include "contract/kda_prefill.h"
#include "contract/situ_and_mul.h"
#include "dispatch/kernel.h"

/// Each op's variants, best first: the lists that `select()` walks and `k3 ops` prints.
namespace k3 {

std::span<const Kernel<KdaPrefillProblem>> kda_prefill_kernels();
std::span<const Kernel<KdaFusedDecodeProblem>> kda_fused_decode_kernels();
std::span<const Kernel<SituAndMulProblem>> situ_and_mul_kernels();

}  // namespace k3
