// SPDX-License-Identifier: Apache-2.0
#include "core/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracle/round.h"

namespace k3 {
namespace {

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const bf16 x{static_cast<std::uint16_t>(bits)};
    const bf16 back = to_bf16(to_float(x));
    if (std::isnan(to_float(x)))
      EXPECT_TRUE(std::isnan(to_float(back)));
    else
      EXPECT_EQ(back.bits, x.bits);
  }
}

TEST(Bf16, TiesGoToEven) {
  // 1 + 2^-8 lies half way between 1 and 1 + 2^-7; 1 + 3 * 2^-8 between odd and even the other way.
  EXPECT_EQ(to_float(to_bf16(1.0F + 0x1p-8F)), 1.0F);
  EXPECT_EQ(to_float(to_bf16(1.0F + 0x1.8p-7F)), 1.0F + 0x1p-6F);
  EXPECT_EQ(to_float(to_bf16(std::nextafter(1.0F + 0x1p-8F, 2.0F))), 1.0F + 0x1p-7F);
}

TEST(Bf16, LargestRoundsToInfinity) {
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(Bf16, OracleRoundsADoubleOnce) {
  // Just above a tie: rounding to fp32 first would land on the tie and then go down to even.
  const double above = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(to_float(to_bf16(static_cast<float>(above))), 1.0F);
  EXPECT_EQ(to_float(oracle::round_bf16(above)), 1.0F + 0x1p-7F);
  EXPECT_EQ(to_float(oracle::round_bf16(-above)), -1.0F - 0x1p-7F);
  EXPECT_EQ(to_float(oracle::round_bf16(1.0 + 0x1p-8)), 1.0F);
}

}  // namespace
}  // namespace k3
