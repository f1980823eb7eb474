// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "contract/kda.h"
#include "core/bf16.h"
#include "k3/ops/moe_finalize.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements, between rows.
struct MoeFinalizeProblem {
  std::int64_t T = 0;
  std::int64_t num_rows = 0;  ///< P
  int topk = 0;
  int H = 0;
  const bf16* experts_out = nullptr;  ///< [P, H]
  std::int64_t experts_out_stride = 0;
  IndexList idx;                       ///< [T * topk]
  const void* topk_weights = nullptr;  ///< [T, topk]
  DType weights_dtype = DType::kBF16;
  std::int64_t weights_stride = 0;
  bf16* out = nullptr;  ///< [T, H]
  std::int64_t out_stride = 0;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MoeFinalizeArgs>> moe_finalize_args();

/// The index lists of a problem, for whoever reads them.
inline auto index_lists(MoeFinalizeProblem& p) { return std::array{&p.idx}; }
/// Of index lists in host memory. @throws ContractError
void check_values(const Contract& contract, const MoeFinalizeProblem& p, ValueChecks checks);

/// @throws ContractError
MoeFinalizeProblem check(const MoeFinalizeArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
