// SPDX-License-Identifier: Apache-2.0
// The vector functions against double, and the vector rounding to bf16 against the scalar one.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/cpu/math_test.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/bf16.h"
#include "cpu/bf16-inl.h"
#include "cpu/math-inl.h"
#include "harness/inputs.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

using MathTag = hn::CappedTag<float, 16>;
constexpr std::size_t kMathLanes = hn::MaxLanes(MathTag());

/// Distance in units of the last place of the float nearest to `expected`.
double ulps(double expected, float seen) {
  const auto nearest = static_cast<float>(expected);
  if (std::isnan(nearest) || std::isnan(seen))
    return std::isnan(nearest) && std::isnan(seen) ? 0.0 : HUGE_VAL;
  if (std::isinf(nearest) || std::isinf(seen)) return nearest == seen ? 0.0 : HUGE_VAL;
  const float magnitude = std::fabs(nearest);
  const double unit = static_cast<double>(std::nextafter(magnitude, HUGE_VALF)) - magnitude;
  return std::fabs(static_cast<double>(seen) - expected) / unit;
}

/// Largest error over every `step`-th pattern of a float in [low, high] and its bounds. Function
/// maps vectors, Reference doubles.
template <class Function, class Reference>
double worst_ulps(float low, float high, std::uint32_t step, Function function,
                  Reference reference) {
  const MathTag d;
  double worst = 0.0;
  HWY_ALIGN float x[kMathLanes] = {};
  HWY_ALIGN float y[kMathLanes] = {};
  std::size_t count = 0;
  const auto flush = [&]() HWY_ATTR {
    hn::Store(function(hn::Load(d, x)), d, y);
    for (std::size_t i = 0; i < count; ++i) worst = std::max(worst, ulps(reference(x[i]), y[i]));
    count = 0;
  };
  const auto take = [&](float value) HWY_ATTR {
    if (!(value >= low && value <= high)) return;
    x[count++] = value;
    if (count == kMathLanes) flush();
  };
  take(low);
  take(high);
  for (std::uint64_t bits = 0; bits <= std::numeric_limits<std::uint32_t>::max(); bits += step)
    take(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  flush();
  return worst;
}

/// A stride that meets every mantissa pattern's neighbourhood: odd, and no power of two.
constexpr std::uint32_t kStep = 1009;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

double exp_ulps() {
  return worst_ulps(
      -kInfinity, kInfinity, kStep, [](auto x) HWY_ATTR { return exp(MathTag(), x); },
      [](double x) { return std::exp(x); });
}

/// Above the flush to zero.
double exp_nonpositive_ulps() {
  return worst_ulps(
      -87.3F, 0.0F, kStep, [](auto x) HWY_ATTR { return exp_nonpositive(MathTag(), x); },
      [](double x) { return std::exp(x); });
}

/// Above where 1 + exp(-x) overflows to a result of 0.
double sigmoid_ulps() {
  return worst_ulps(
      -87.0F, kInfinity, kStep, [](auto x) HWY_ATTR { return sigmoid(MathTag(), x); },
      [](double x) { return 1.0 / (1.0 + std::exp(-x)); });
}

double softplus_ulps() {
  return worst_ulps(
      -kInfinity, kInfinity, kStep, [](auto x) HWY_ATTR { return softplus(MathTag(), x); },
      [](double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); });
}

double tanh_ulps() {
  return worst_ulps(
      -kInfinity, kInfinity, kStep, [](auto x) HWY_ATTR { return tanh(MathTag(), x); },
      [](double x) { return std::tanh(x); });
}

/// NaN for NaN in every lane of every function, and the values at the ends.
bool ends_are_right() {
  const MathTag d;
  const auto first = [](auto v) HWY_ATTR { return hn::GetLane(v); };
  const auto all_nan = [&](auto v) HWY_ATTR { return hn::AllTrue(d, hn::IsNaN(v)); };
  const auto nan = hn::Set(d, std::nanf(""));
  const auto low = hn::Set(d, -kInfinity);
  const auto high = hn::Set(d, kInfinity);
  return all_nan(exp(d, nan)) && all_nan(exp_nonpositive(d, nan)) && all_nan(sigmoid(d, nan)) &&
         all_nan(softplus(d, nan)) && all_nan(tanh(d, nan)) &&
         first(exp_nonpositive(d, low)) == 0.0F && first(exp_nonpositive(d, hn::Zero(d))) == 1.0F &&
         first(sigmoid(d, low)) == 0.0F && first(sigmoid(d, high)) == 1.0F &&
         first(softplus(d, low)) == 0.0F && first(softplus(d, high)) == kInfinity &&
         first(tanh(d, low)) == -1.0F && first(tanh(d, high)) == 1.0F &&
         std::signbit(first(tanh(d, hn::Set(d, -0.0F))));
}

/// Over all upper halves of a float with random low halves, and with those around a tie.
std::int64_t bf16_differences() {
  const MathTag d;
  harness::Random random(11);
  std::int64_t differences = 0;
  HWY_ALIGN float x[kMathLanes];
  HWY_ALIGN float rounded[kMathLanes];
  bf16 stored[kMathLanes];
  std::size_t count = 0;
  const auto take = [&](std::uint32_t bits) HWY_ATTR {
    x[count++] = std::bit_cast<float>(bits);
    if (count < kMathLanes) return;
    count = 0;
    store_bf16(d, hn::Load(d, x), stored);
    hn::Store(round_to_bf16(d, hn::Load(d, x)), d, rounded);
    for (std::size_t i = 0; i < kMathLanes; ++i) {
      const std::uint16_t expected = to_bf16(x[i]).bits;
      differences += stored[i].bits != expected;
      differences += std::bit_cast<std::uint32_t>(rounded[i]) != std::uint32_t{expected} << 16;
    }
  };
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (std::uint32_t lower : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      take(upper << 16 | lower);
    for (int i = 0; i < 26; ++i)
      take(upper << 16 | static_cast<std::uint32_t>(random.next() & 0xFFFFU));
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

HWY_EXPORT(exp_ulps);
HWY_EXPORT(exp_nonpositive_ulps);
HWY_EXPORT(sigmoid_ulps);
HWY_EXPORT(softplus_ulps);
HWY_EXPORT(tanh_ulps);
HWY_EXPORT(ends_are_right);
HWY_EXPORT(bf16_differences);

class VectorMath : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!use_target(GetParam())) GTEST_SKIP() << "this CPU has no " << GetParam();
  }
  void TearDown() override { use_target(""); }
};

TEST_P(VectorMath, ErrorsInUnitsOfTheLastPlace) {
  EXPECT_LT(HWY_DYNAMIC_DISPATCH(exp_ulps)(), 1.1);
  EXPECT_LT(HWY_DYNAMIC_DISPATCH(exp_nonpositive_ulps)(), 1.0);
  EXPECT_LT(HWY_DYNAMIC_DISPATCH(sigmoid_ulps)(), 2.5);
  EXPECT_LT(HWY_DYNAMIC_DISPATCH(softplus_ulps)(), 2.75);
  EXPECT_LT(HWY_DYNAMIC_DISPATCH(tanh_ulps)(), 1.5);
}

TEST_P(VectorMath, NanAndTheEnds) { EXPECT_TRUE(HWY_DYNAMIC_DISPATCH(ends_are_right)()); }

TEST_P(VectorMath, RoundsToBf16LikeTheScalar) {
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(bf16_differences)(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, VectorMath, testing::ValuesIn(compiled_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace k3::cpu
#endif  // HWY_ONCE
