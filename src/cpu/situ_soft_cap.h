// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace k3::cpu {

/// cap * tanh(x / cap) as x R(x / cap) with x held to where tanh has become 1. Multiplying by x
/// itself keeps the relative accuracy for caps of any size, and its sign makes that of the cap
/// moot.
struct SoftCap {
  static constexpr float kSaturated = 7.0F;  ///< tanh(7) = 1 - 1.7e-6

  explicit SoftCap(float cap) {
    const float size = std::fabs(cap);
    prescale = size < 0x1p-64F ? 0x1p64F : 1.0F;
    inverse = 1.0F / (size * prescale);
    limit = std::min(kSaturated * size, FLT_MAX);
  }

  float limit;     ///< of |x|
  float prescale;  ///< keeps the inverse of a tiny cap finite
  float inverse;   ///< 1 / (|cap| * prescale)
};

}  // namespace k3::cpu
