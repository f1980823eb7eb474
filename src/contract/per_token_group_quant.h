// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "core/group_quant.h"
#include "k3/ops/per_token_group_quant.h"

namespace k3 {

/// Where the scales of a tensor's groups go.
struct ScaleRows {
  void* data = nullptr;
  std::int64_t row_stride = 0;    ///< elements: floats, or words if packed
  std::int64_t group_stride = 0;  ///< from one element to the next of a row
  std::int64_t num_groups = 0;    ///< of a row
  bool packed = false;            ///< four exponent bytes a word, the last word filled with zeros
};

/// A checked call: what every backend receives.
struct PerTokenGroupQuantProblem {
  std::int64_t T = 0;
  std::int64_t D = 0;
  int group_size = 0;
  QuantFormat format = QuantFormat::kE4M3;
  const void* input = nullptr;
  DType input_dtype = DType::kBF16;
  std::int64_t input_stride = 0;
  std::uint8_t* output_q = nullptr;  ///< one byte a code
  std::int64_t q_stride = 0;
  ScaleRows scales;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<PerTokenGroupQuantArgs>> per_token_group_quant_args();

/// @throws ContractError
PerTokenGroupQuantProblem check(const PerTokenGroupQuantArgs& args,
                                Purpose purpose = Purpose::kRun);

}  // namespace k3
