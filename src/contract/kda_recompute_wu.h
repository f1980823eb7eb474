// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda_prefill.h"
#include "contract/sequences.h"
#include "core/bf16.h"
#include "k3/ops/kda_recompute_wu.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements.
struct KdaRecomputeWuProblem {
  Sequences sequences;
  int H = 0;   ///< key heads
  int HV = 0;  ///< value heads, a multiple of H

  const bf16* k = nullptr;
  TokenStrides k_strides;
  const bf16* v = nullptr;
  TokenStrides v_strides;
  const float* g = nullptr;
  TokenStrides g_strides;
  const void* beta = nullptr;  ///< or null: ones
  DType beta_dtype = DType::kF32;
  TokenStrides beta_strides;  ///< head stride 1
  const void* A = nullptr;
  DType A_dtype = DType::kF32;
  TokenStrides A_strides;
  bf16* w = nullptr;
  TokenStrides w_strides;
  bf16* u = nullptr;
  TokenStrides u_strides;

  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<KdaRecomputeWuArgs>> kda_recompute_wu_args();

/// @throws ContractError
KdaRecomputeWuProblem check(const KdaRecomputeWuArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
