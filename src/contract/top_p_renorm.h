// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "k3/ops/top_p_renorm.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements.
struct TopPRenormProblem {
  std::int64_t B = 0;
  int V = 0;
  const float* probs = nullptr;  ///< [B, V]
  std::int64_t probs_stride = 0;
  const float* top_ps = nullptr;  ///< [B] or null: top_p
  std::int64_t top_ps_stride = 0;
  float top_p = 1.0F;
  float* out = nullptr;  ///< [B, V]; may be probs
  std::int64_t out_stride = 0;
  Device device;

  /// q: masses are counted in units of 2^-q, so that V of them fit 63 bits.
  [[nodiscard]] int mass_bits() const {
    return std::min(46, 63 - static_cast<int>(std::bit_width(static_cast<std::uint32_t>(V))));
  }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<TopPRenormArgs>> top_p_renorm_args();

/// @throws ContractError
TopPRenormProblem check(const TopPRenormArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
