// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "core/bf16.h"
#include "k3/ops/mla_output_gate.h"

namespace k3 {

/// A checked call: what every backend receives, folded into as few and as long rows as the strides
/// allow (dense tensors: one).
struct MlaOutputGateProblem {
  std::int64_t num_rows = 0;
  std::int64_t D = 0;  ///< elements of a row, dense in every tensor
  const bf16* x = nullptr;
  std::int64_t x_stride = 0;
  const bf16* gate = nullptr;
  std::int64_t gate_stride = 0;
  bf16* out = nullptr;
  std::int64_t out_stride = 0;
  Device device;
};

inline constexpr bf16 kMlaOutputGateNaN = {0x7FFF};  ///< how every NaN is written

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<MlaOutputGateArgs>> mla_output_gate_args();

/// @throws ContractError
MlaOutputGateProblem check(const MlaOutputGateArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
