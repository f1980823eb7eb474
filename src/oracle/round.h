// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "core/bf16.h"

namespace k3::oracle {

/// A double as bf16, to nearest even, without rounding twice through fp32.
inline bf16 round_bf16(double x) {
  const auto nearest = static_cast<float>(x);
  // Round to odd in fp32 where the conversion was inexact: bf16 has 16 fewer bits, so the second
  // rounding is then the right one.
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == x) return to_bf16(nearest);
  const float toward_zero = std::fabs(static_cast<double>(nearest)) > std::fabs(x)
                                ? std::nextafter(nearest, 0.0F)
                                : nearest;
  const auto odd = std::bit_cast<float>(std::bit_cast<std::uint32_t>(toward_zero) | 1U);
  return to_bf16(odd);
}

}  // namespace k3::oracle
