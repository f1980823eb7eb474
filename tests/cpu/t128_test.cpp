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

/// Dot products of four rows with two vectors that were transposed once, as the kernels do it.
void four_times_two_dots(const float (&x)[4][kT128Length], const float* y_split,
                         const float* z_split, float* with_y, float* with_z) {
  T128Two rows[4];
  for (int r = 0; r < 4; ++r) {
    T128Two blocks[4];
    for (std::size_t block = 0; block < 4; ++block) {
      T128Vec y_sums[kT128BlockVectors];
      T128Vec z_sums[kT128BlockVectors];
      for (std::size_t i = 0; i < kT128BlockVectors; ++i) {
        const std::size_t index = block * kT128BlockVectors + i;
        const T128Elements elements = t128_load(x[r], index);
        y_sums[i] = t128_group_sums(elements, t128_load_split(y_split, index));
        z_sums[i] = t128_group_sums(elements, t128_load_split(z_split, index));
      }
      blocks[block] = t128_level1_of_two(y_sums, z_sums);
    }
    rows[r] = t128_join_of_two(blocks);
  }
  const T128Two dots = t128_join_of_two(rows);
  hn::StoreU(t128_first(dots), T128Quad(), with_y);
  hn::StoreU(t128_second(dots), T128Quad(), with_z);
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
    float z[kT128Length];
    float y_split[kT128Length];
    float z_split[kT128Length];
    for (auto& row : x) draw(random, row);
    draw(random, y);
    draw(random, z);
    if (trial == 5) x[2][77] = std::nanf("");
    t128_split(y, y_split);
    t128_split(z, z_split);
    float with_y[4];
    float with_z[4];
    four_times_two_dots(x, y_split, z_split, with_y, with_z);
    for (int r = 0; r < 4; ++r) {
      const float expected = t128_dot_scalar(x[r], y);
      differences += !same(expected, with_y[r]);
      differences += !same(t128_dot_scalar(x[r], z), with_z[r]);
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
