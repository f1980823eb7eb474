// SPDX-License-Identifier: Apache-2.0
#include "core/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/bf16.h"

namespace k3 {
namespace {

/// The code whose value is nearest to x, by looking at all of them; ties go to the even code.
std::uint8_t nearest_code(float x) {
  int best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 0x7F; ++code) {
    const double distance = std::fabs(std::fabs(static_cast<double>(x)) -
                                      to_float(fp8_e4m3{static_cast<std::uint8_t>(code)}));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
      best_distance = distance;
    }
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

TEST(Fp8, EveryCodeIsTheValueOfTheFormat) {
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 15;
    const int mantissa = bits & 7;
    const float value = to_float(fp8_e4m3{static_cast<std::uint8_t>(bits)});
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(value, (bits & 0x80) != 0 ? -magnitude : magnitude) << bits;
    EXPECT_EQ(to_e4m3(value).bits, bits);
  }
}

TEST(Fp8, EveryBf16RoundsToTheNearestCode) {
  for (int bits = 0; bits < 65536; ++bits) {
    const float x = to_float(bf16{static_cast<std::uint16_t>(bits)});
    const std::uint8_t expected = std::isnan(x)           ? 0x7F
                                  : std::fabs(x) > 448.0F ? (std::signbit(x) ? 0xFE : 0x7E)
                                                          : nearest_code(x);
    ASSERT_EQ(to_e4m3(x).bits, expected) << x;
  }
}

TEST(Fp8, NeighboursOfEveryTieInFp32) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = to_float(fp8_e4m3{static_cast<std::uint8_t>(code)});
    const float high = to_float(fp8_e4m3{static_cast<std::uint8_t>(code + 1)});
    const float tie = (low + high) / 2;
    for (float x : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 1e9F)})
      EXPECT_EQ(to_e4m3(x).bits, nearest_code(x)) << x;
  }
}

TEST(Fp8, PowerOfTwoScalesRoundUp) {
  for (float x : {1.0F, 0x1p-100F, 0x1p100F}) EXPECT_EQ(ue8m0_value(ue8m0_ceil(x)), x);
  for (float x : {1.0000001F, 1.5F, 1.9999999F}) EXPECT_EQ(ue8m0_value(ue8m0_ceil(x)), 2.0F);
  EXPECT_EQ(ue8m0_value(ue8m0_ceil(0x1p-140F)), 0x1p-126F);
  for (int byte = 1; byte < 254; ++byte) {
    const auto b = static_cast<std::uint8_t>(byte);
    EXPECT_EQ(ue8m0_value(b) * ue8m0_reciprocal(b), 1.0F) << byte;
  }
}

}  // namespace
}  // namespace k3
