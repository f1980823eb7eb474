// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "core/bf16.h"
#include "k3/ops/kda_output_norm.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements.
struct KdaOutputNormProblem {
  int T = 0;
  int H = 0;

  const bf16* raw = nullptr;  ///< [T, H*128]
  std::int64_t raw_stride = 0;
  const bf16* gate = nullptr;  ///< [T, H*128]
  std::int64_t gate_stride = 0;
  const float* weight = nullptr;  ///< [128]
  bf16* out = nullptr;            ///< [T, H*128]; may be raw, with the same stride
  std::int64_t out_stride = 0;

  float eps = 1e-5F;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<KdaOutputNormArgs>> kda_output_norm_args();

/// @throws ContractError
KdaOutputNormProblem check(const KdaOutputNormArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
