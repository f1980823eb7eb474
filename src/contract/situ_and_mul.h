// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "core/bf16.h"
#include "k3/ops/situ_and_mul.h"

namespace k3 {

/// A checked call: what every backend receives. Leading axes are folded into one row axis.
struct SituAndMulProblem {
  std::int64_t num_rows = 0;
  std::int64_t D = 0;
  const bf16* input = nullptr;  ///< row r: gate at r * input_stride, up D elements later
  std::int64_t input_stride = 0;
  bf16* out = nullptr;
  std::int64_t out_stride = 0;
  float beta = 4.0F;
  bool has_linear_beta = false;
  float linear_beta = 0.0F;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<SituAndMulArgs>> situ_and_mul_args();

/// @throws ContractError
SituAndMulProblem check(const SituAndMulArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
