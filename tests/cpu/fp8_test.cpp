// SPDX-License-Identifier: Apache-2.0
// The vector conversion to fp8 against the scalar one, on every SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/cpu/fp8_test.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <bit>
#include <cstdint>

#include "core/bf16.h"
#include "cpu/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

/// The number of floats among every bf16, the floats beside it, and a sample of all patterns whose
/// code differs from `to_e4m3`.
int wrong_e4m3_codes() {
  const hn::CappedTag<float, 16> d;
  int wrong = 0;
  const auto check = [&](std::uint32_t bits) HWY_ATTR {
    fp8_e4m3 codes[16];
    const auto x = std::bit_cast<float>(bits);
    store_e4m3(d, hn::Set(d, x), codes);
    wrong += codes[hn::Lanes(d) - 1].bits != to_e4m3(x).bits ? 1 : 0;
  };
  for (std::uint32_t high = 0; high < 65536; ++high)
    for (std::uint32_t low : {0U, 1U, 0xFFFFU}) check(high << 16 | low);
  for (std::uint64_t bits = 0; bits < 0x100000000U; bits += 10007)
    check(static_cast<std::uint32_t>(bits));
  return wrong;
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include "cpu/targets.h"

namespace k3::cpu {
HWY_EXPORT(wrong_e4m3_codes);

TEST(Fp8Vectors, EqualTheScalarConversion) {
  for (const std::string& target : compiled_targets()) {
    if (!use_target(target)) continue;
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(wrong_e4m3_codes)(), 0) << target;
  }
  use_target("");
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
