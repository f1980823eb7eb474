// SPDX-License-Identifier: Apache-2.0
#include "contract/checks.h"

#include <gtest/gtest.h>

#include <vector>

namespace k3 {
namespace {

std::vector<float> buffer(4096);

ConstTensorView view(std::int64_t offset, std::vector<std::int64_t> shape,
                     std::vector<std::int64_t> strides) {
  return {buffer.data() + offset, DType::kF32, std::span<const std::int64_t>(shape),
          std::span<const std::int64_t>(strides)};
}

TEST(MayOverlap, DisjointIntervals) {
  EXPECT_FALSE(may_overlap(view(0, {10}, {1}), view(10, {10}, {1})));
  EXPECT_TRUE(may_overlap(view(0, {11}, {1}), view(10, {10}, {1})));
}

TEST(MayOverlap, ColumnsOfOneRowBuffer) {
  const auto left = view(0, {8, 16}, {64, 1});
  const auto right = view(16, {8, 16}, {64, 1});
  EXPECT_FALSE(may_overlap(left, right));
  EXPECT_FALSE(may_overlap(right, left));
  EXPECT_TRUE(may_overlap(left, view(15, {8, 16}, {64, 1})));
  EXPECT_TRUE(may_overlap(left, view(64, {8, 16}, {64, 1})));
  EXPECT_FALSE(may_overlap(left, view(64 + 16, {8, 16}, {64, 1})));
  EXPECT_TRUE(may_overlap(left, view(64 + 60, {4, 8}, {64, 1}))) << "wraps into the next row";
}

TEST(MayOverlap, StateAndWindowInterleavedInOnePagedPool) {
  // A slot of 100: state in [0, 60), window in [60, 90).
  const auto state = view(0, {5, 2, 30}, {100, 30, 1});
  const auto window = view(60, {5, 3, 10}, {100, 10, 1});
  EXPECT_FALSE(may_overlap(state, window));
  EXPECT_TRUE(may_overlap(state, view(59, {5, 3, 10}, {100, 10, 1})));
}

TEST(MayOverlap, EmptyAndAbsent) {
  EXPECT_FALSE(may_overlap(view(0, {0, 4}, {4, 1}), view(0, {4}, {1})));
  EXPECT_FALSE(may_overlap({}, view(0, {4}, {1})));
}

TEST(Contract, TextNamesArgumentRuleAndValue) {
  const Contract contract("an_op", Purpose::kRun);
  try {
    contract.shape("x", view(0, {2, 3}, {3, 1}), {{"B", 2}, {"D", 4}});
    FAIL();
  } catch (const ContractError& e) {
    EXPECT_STREQ(e.what(), "an_op: x must have shape [B, D] = [2, 4]; got f32 [2, 3]");
    EXPECT_EQ(e.argument(), "x");
  }
}

TEST(Describe, TellsStridesOfWhatIsNotDense) {
  EXPECT_EQ(describe(view(0, {2, 3}, {3, 1})), "f32 [2, 3]");
  EXPECT_EQ(describe(view(0, {2, 3}, {8, 1})), "f32 [2, 3] strides (8, 1)");
  EXPECT_EQ(describe({}), "absent");
}

}  // namespace
}  // namespace k3
