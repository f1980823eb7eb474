// SPDX-License-Identifier: Apache-2.0
// T128's vector forms give the bits of its scalar definition, on every target with fused
// multiply-add.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/cpu/t128_test.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "cpu/t128-inl.h"
#include "harness/inputs.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

/// 128 values over many binades.
void draw(harness::Random& random, float* to) {
  for (std::size_t i = 0; i < kT128Length; ++i)
    to[i] = static_cast<float>(random.normal() * std::exp(3.0 * random.normal()));
}

/// Four dot products against one vector that was transposed once, as the kernels do it.
void four_dots(const float (&x)[4][kT128Length], const float* split, float* results) {
  T128QuadVec blocks[4];
  for (int r = 0; r < 4; ++r) {
    T128Vec sums[kT128Vectors];
    for (std::size_t i = 0; i < kT128Vectors; ++i)
      sums[i] = t128_group_sums(t128_load(x[r], i), t128_load_split(split, i));
    blocks[r] = t128_blocks(sums);
  }
  hn::StoreU(t128_finish(blocks), T128Quad(), results);
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b)
                       : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Results of `trials` x 4 rows that differ from the definition.
int t128_differences(int trials) {
  harness::Random random(3);
  int differences = 0;
  for (int trial = 0; trial < trials; ++trial) {
    float x[4][kT128Length];
    float y[kT128Length];
    float split[kT128Length];
    for (auto& row : x) draw(random, row);
    draw(random, y);
    if (trial == 5) x[2][77] = std::nanf("");
    t128_split(y, split);
    float results[4];
    four_dots(x, split, results);
    for (int r = 0; r < 4; ++r) {
      const float expected = t128_dot_scalar(x[r], y);
      differences += !same(expected, results[r]);
      differences += !same(expected, t128_dot(x[r], y));
    }
  }
  return differences;
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include "cpu/targets.h"

namespace k3::cpu {
namespace {

HWY_EXPORT(t128_differences);

TEST(T128, VectorFormsEqualTheDefinition) {
  int targets = 0;
  for (const std::string& target : compiled_targets()) {
    // These round each product.
    if (target == "ssse3" || target == "sse4" || !use_target(target)) continue;
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(t128_differences)(5000), 0) << target;
    ++targets;
  }
  use_target("");
  if (targets == 0) GTEST_SKIP() << "this CPU has no target with fused multiply-add";
}

}  // namespace
}  // namespace k3::cpu
#endif  // HWY_ONCE
