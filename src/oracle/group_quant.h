// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <span>

#include "contract/per_token_group_quant.h"

namespace k3::oracle {

/// To nearest even, saturated: the value itself in units of the last place of its binade.
inline std::uint8_t round_e4m3(double x) {
  const int sign = std::signbit(x) ? 0x80 : 0;
  const double magnitude = std::min(std::fabs(x), 448.0);
  const int exponent = magnitude == 0.0 ? -6 : std::max(std::ilogb(magnitude), -6);
  const double units = std::nearbyint(std::ldexp(magnitude, 3 - exponent));
  return static_cast<std::uint8_t>(sign | (static_cast<int>(units) + 8 * (exponent + 6)));
}

/// The scale and the codes of one group of values, each step rounded to fp32 as the formula says.
struct QuantisedGroup {
  float scale = 0.0F;
  float multiplier = 0.0F;
  int exponent_byte = 0;

  QuantisedGroup(QuantFormat format, std::span<const double> values) {
    double amax = 1e-10F;
    for (double x : values)
      if (std::fabs(x) > amax) amax = std::fabs(x);
    amax = std::min(amax, static_cast<double>(FLT_MAX));
    const double largest = format == QuantFormat::kI8 ? 127.0 : 448.0;
    scale = static_cast<float>(amax * static_cast<float>(1.0 / largest));
    multiplier = static_cast<float>(largest / amax);
    if (format != QuantFormat::kE4M3UE8M0) return;
    int exponent = 0;  // scale = f * 2^exponent, f in [1/2, 1)
    if (std::frexp(scale, &exponent) == 0.5F) --exponent;
    exponent_byte = exponent + 127;
    scale = std::ldexp(1.0F, exponent);
    multiplier = std::ldexp(1.0F, -exponent);
  }
  [[nodiscard]] std::uint8_t code(QuantFormat format, double x) const {
    const auto scaled = static_cast<float>(x * multiplier);
    if (format != QuantFormat::kI8) return round_e4m3(std::isnan(scaled) ? 448.0F : scaled);
    const float held = std::isnan(scaled) ? 127.0F : std::clamp(scaled, -128.0F, 127.0F);
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::trunc(held)));
  }
};

/// Writes the scale of group g of a row.
inline void store_scale(const ScaleRows& to, std::int64_t row, std::int64_t g,
                        const QuantisedGroup& group) {
  if (!to.packed) {
    static_cast<float*>(to.data)[row * to.row_stride + g * to.group_stride] = group.scale;
    return;
  }
  auto* word = static_cast<std::uint32_t*>(to.data) + row * to.row_stride + g / 4 * to.group_stride;
  if (g % 4 == 0) *word = 0;
  *word |= static_cast<std::uint32_t>(group.exponent_byte) << 8 * (g % 4);
}

}  // namespace k3::oracle
