// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

/// fp8 e4m3fn storage and power-of-two (UE8M0) scales, as the OCP 8-bit and MX formats define them.
namespace k3 {

/// 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, NaN is 0x7F or 0xFF, largest 448.
struct fp8_e4m3 {
  std::uint8_t bits = 0;
};
static_assert(sizeof(fp8_e4m3) == 1);

inline constexpr float kMaxE4M3 = 448.0F;

inline float to_float(fp8_e4m3 x) {
  const unsigned exponent = x.bits >> 3 & 15U;
  const unsigned mantissa = x.bits & 7U;
  if ((x.bits & 0x7FU) == 0x7FU) return std::bit_cast<float>(0x7FC00000U);
  const float magnitude = exponent == 0
                              ? static_cast<float>(mantissa) * 0x1p-9F
                              : std::bit_cast<float>((exponent + 120U) << 23 | mantissa << 20);
  return (x.bits & 0x80U) != 0 ? -magnitude : magnitude;
}

/// Round to nearest even and saturate: past 448, infinities included, gives +-448. Every NaN gives
/// 0x7F, as on the GPU (cvt.rn.satfinite).
inline fp8_e4m3 to_e4m3(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>(u >> 24 & 0x80U);
  const std::uint32_t magnitude = u & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return {0x7F};
  if (magnitude >= 0x43E00000U) return {static_cast<std::uint8_t>(sign | 0x7EU)};
  if (magnitude < 0x3C800000U) {  // below 2^-6: steps of 2^-9, which adding 2^14 makes fp32's own
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
    return {static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0xFU))};
  }
  const std::uint32_t rounded = magnitude + 0x7FFFFU + (magnitude >> 20 & 1U);
  const std::uint32_t code = (rounded >> 20) - (120U << 3);
  return {static_cast<std::uint8_t>(sign | (code < 0x7EU ? code : 0x7EU))};
}

/// The exponent byte of the smallest power of two that is at least x, for finite x > 0: the
/// exponent field of x, and one more where x has mantissa bits (of a subnormal x: 2^-126).
inline std::uint8_t ue8m0_ceil(float x) {
  return static_cast<std::uint8_t>((std::bit_cast<std::uint32_t>(x) + 0x7FFFFFU) >> 23);
}

/// 2^(byte - 127), for 1 <= byte <= 254.
inline float ue8m0_value(std::uint8_t byte) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(byte) << 23);
}

/// 2^(127 - byte), for 1 <= byte <= 253: exact.
inline float ue8m0_reciprocal(std::uint8_t byte) {
  return std::bit_cast<float>((254U - byte) << 23);
}

}  // namespace k3
