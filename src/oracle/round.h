// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/bf16.h"
#include "core/f16.h"

namespace k3::oracle {

/// A double as fp32, rounded to odd where the conversion is inexact: a format with at least two
/// bits fewer then gets the right value by its own rounding.
inline float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == x) return nearest;
  const float toward_zero = std::fabs(static_cast<double>(nearest)) > std::fabs(x)
                                ? std::nextafter(nearest, 0.0F)
                                : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(toward_zero) | 1U);
}

/// To nearest even, without rounding twice through fp32.
inline bf16 round_bf16(double x) { return to_bf16(round_to_odd(x)); }
inline f16 round_f16(double x) { return to_f16(round_to_odd(x)); }

}  // namespace k3::oracle
