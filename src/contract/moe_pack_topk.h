// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/moe_route.h"
#include "k3/ops/moe_pack_topk.h"

namespace k3 {

/// A checked call: what every backend receives. Rows without gaps are folded into one.
struct MoePackTopkProblem {
  std::int64_t num_rows = 0;
  std::int64_t columns = 0;
  const void* ids = nullptr;  ///< i32 or i64
  bool wide_ids = false;      ///< i64
  std::int64_t ids_stride = 0;
  const float* weights = nullptr;
  std::int64_t weights_stride = 0;
  std::int32_t* packed = nullptr;
  std::int64_t packed_stride = 0;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MoePackTopkArgs>> moe_pack_topk_args();

/// @throws ContractError
MoePackTopkProblem check(const MoePackTopkArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
