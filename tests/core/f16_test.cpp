// SPDX-License-Identifier: Apache-2.0
#include "core/f16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/tensor.h"
#include "oracle/round.h"

namespace k3 {
namespace {

TEST(F16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 x{static_cast<std::uint16_t>(bits)};
    const f16 back = to_f16(to_float(x));
    if (std::isnan(to_float(x)))
      EXPECT_TRUE(std::isnan(to_float(back))) << bits;
    else
      EXPECT_EQ(back.bits, x.bits);
  }
}

TEST(F16, ValuesAreTheHarnessTensors) {
  harness::Tensor tensor = harness::Tensor::dense(DType::kF16, {65536});
  auto* const codes = reinterpret_cast<std::uint16_t*>(tensor.storage());
  for (std::int64_t i = 0; i < 65536; ++i) codes[i] = static_cast<std::uint16_t>(i);
  for (std::int64_t i = 0; i < 65536; ++i) {
    const float value = to_float(f16{static_cast<std::uint16_t>(i)});
    if (!std::isnan(value)) {
      EXPECT_EQ(value, tensor.get(i)) << i;
    }
  }
}

TEST(F16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_f16(1.0F + 0x1p-11F)), 1.0F);
  EXPECT_EQ(to_float(to_f16(1.0F + 0x1.8p-10F)), 1.0F + 0x1p-9F);
  EXPECT_EQ(to_float(to_f16(std::nextafter(1.0F + 0x1p-11F, 2.0F))), 1.0F + 0x1p-10F);
  EXPECT_EQ(to_f16(0x1p-25F).bits, 0);  // half of the smallest subnormal
  EXPECT_EQ(to_f16(0x1.8p-25F).bits, 1);
  EXPECT_EQ(to_f16(-0x1.8p-24F).bits, 0x8002);
  EXPECT_EQ(to_f16(0x1.ffep-15F + 0x1p-26F).bits, 0x0400);  // up into the normal numbers
}

TEST(F16, OverflowsHalfAStepPastTheLargest) {
  EXPECT_EQ(to_f16(std::nextafter(65520.0F, 0.0F)).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_f16(-1e30F).bits, 0xFC00);
  EXPECT_EQ(to_f16(std::numeric_limits<float>::infinity()).bits, 0x7C00);
}

TEST(F16, OracleRoundsADoubleOnce) {
  const double above = 1.0 + 0x1p-11 + 0x1p-40;  // fp32 would land on the tie
  EXPECT_EQ(to_float(to_f16(static_cast<float>(above))), 1.0F);
  EXPECT_EQ(to_float(oracle::round_f16(above)), 1.0F + 0x1p-10F);
}

}  // namespace
}  // namespace k3
