// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "core/bf16.h"
#include "k3/ops/add3.h"

namespace k3 {

/// A checked call: what every backend receives. Leading axes are folded into one row axis, and into
/// the rows as far as no tensor has gaps.
struct Add3Problem {
  std::int64_t num_rows = 0;
  std::int64_t D = 0;
  const bf16* a = nullptr;
  std::int64_t a_stride = 0;
  const bf16* b = nullptr;
  std::int64_t b_stride = 0;
  const bf16* c = nullptr;
  std::int64_t c_stride = 0;
  bf16* out = nullptr;  ///< may be a
  std::int64_t out_stride = 0;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<Add3Args>> add3_args();

/// @throws ContractError
Add3Problem check(const Add3Args& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
