// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace k3 {

/// IEEE half-precision storage. Arithmetic happens in fp32.
struct f16 {
  std::uint16_t bits = 0;
};
static_assert(sizeof(f16) == 2);

inline float to_float(f16 x) {
  const std::uint32_t sign = (x.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = (x.bits & 0x7FFFU) << 13;
  // The exponent counts from 15 here and from 127 there. Subnormals become normal by the product.
  const float finite = std::bit_cast<float>(magnitude) * 0x1p112F;
  const bool is_finite = magnitude < 0x7C00U << 13;
  return std::bit_cast<float>(
      sign | (is_finite ? std::bit_cast<std::uint32_t>(finite) : magnitude | 0x7F800000U));
}

/// Round to nearest even; from 65520 on infinity; a NaN stays a NaN (quiet, sign and top payload
/// bits kept).
inline f16 to_f16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = u >> 16 & 0x8000U;
  const std::uint32_t magnitude = u & 0x7FFFFFFFU;
  std::uint32_t bits = 0;
  if (magnitude > 0x7F800000U)
    bits = 0x7E00U | (magnitude >> 13 & 0x3FFU);
  else if (magnitude >= 0x47800000U)  // 65536
    bits = 0x7C00U;
  else if (magnitude < 0x38800000U)  // 2^-14: steps of 2^-24, which adding 1/2 makes fp32's own
    bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  else
    bits = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  return {static_cast<std::uint16_t>(sign | bits)};
}

}  // namespace k3
