// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "core/bf16.h"
#include "k3/ops/moe_topk_sum.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements.
struct MoeTopkSumProblem {
  std::int64_t T = 0;
  int topk = 0;
  int H = 0;
  const bf16* input = nullptr;  ///< [T, topk, H]
  std::int64_t token_stride = 0;
  std::int64_t slot_stride = 0;
  bf16* out = nullptr;  ///< [T, H]
  std::int64_t out_stride = 0;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MoeTopkSumArgs>> moe_topk_sum_args();

/// @throws ContractError
MoeTopkSumProblem check(const MoeTopkSumArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
