// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "core/fp8.h"

/// How a group of values is quantised: include/k3/ops/per_token_group_quant.h has the formula.
/// cuda/common/group_quant.cuh is the same on the device, bit for bit.
namespace k3 {

enum class QuantFormat : std::uint8_t { kE4M3, kE4M3UE8M0, kI8 };

inline constexpr float kLeastAmax = 1e-10F;  ///< keeps the scale of a group of zeros above 0

struct GroupScale {
  float stored;       ///< code * stored is the value
  float multiplier;   ///< value * multiplier is rounded to a code
  std::uint8_t byte;  ///< UE8M0: the exponent of `stored`; else 0
};

/// `amax` is the largest magnitude of the group's numbers: 0 and infinity may be among them.
inline GroupScale group_scale(QuantFormat format, float amax) {
  amax = std::min(std::max(amax, kLeastAmax), FLT_MAX);
  if (format == QuantFormat::kI8) return {amax * (1.0F / 127.0F), 127.0F / amax, 0};
  const float scale = amax * (1.0F / kMaxE4M3);
  if (format == QuantFormat::kE4M3) return {scale, kMaxE4M3 / amax, 0};
  const std::uint8_t byte = ue8m0_ceil(scale);
  return {ue8m0_value(byte), ue8m0_reciprocal(byte), byte};
}

}  // namespace k3
