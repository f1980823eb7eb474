// SPDX-License-Identifier: Apache-2.0
#include "contract/checks.h"

#include <gtest/gtest.h>

#include <algorithm>
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

/// Every layer of a slot holds a window of 30, then a state of 60; slots are 1000 apart.
TEST(MayOverlap, LayersInsideASlot) {
  const auto window = view(0, {3, 4, 30}, {100, 1000, 1});
  const auto state = view(30, {3, 4, 60}, {100, 1000, 1});
  EXPECT_FALSE(may_overlap(state, window));
  EXPECT_FALSE(may_overlap(window, state));
  EXPECT_FALSE(may_overlap_itself(state));
  EXPECT_TRUE(may_overlap(view(29, {3, 4, 60}, {100, 1000, 1}), window));
  EXPECT_TRUE(may_overlap(view(30, {3, 4, 71}, {100, 1000, 1}), window))
      << "reaches the next layer";
  EXPECT_FALSE(may_overlap(view(30, {10, 4, 60}, {100, 1000, 1}), window));
  EXPECT_TRUE(may_overlap(view(930, {3, 3, 60}, {35, 1000, 1}), window)) << "wraps into a slot";
}

/// The slots of a layer stand in the gaps that another layer leaves between its own.
TEST(MayOverlap, LayersBetweenTheSlotsOfOthers) {
  EXPECT_FALSE(may_overlap_itself(view(0, {3, 8, 30}, {1030, 100, 1})));
  EXPECT_FALSE(may_overlap_itself(view(0, {3, 8, 30}, {335, 100, 1})));
  EXPECT_TRUE(may_overlap_itself(view(0, {3, 8, 30}, {329, 100, 1})));
  EXPECT_TRUE(may_overlap_itself(view(0, {4, 12, 30}, {335, 100, 1})));
  EXPECT_TRUE(may_overlap_itself(view(0, {3, 8, 30}, {700, 100, 1}))) << "layer 1 on slot 7";
}

TEST(MayOverlap, AnElementMeetsItself) {
  EXPECT_TRUE(may_overlap_itself(view(0, {2, 4}, {0, 1})));
  EXPECT_TRUE(may_overlap_itself(view(0, {2, 4}, {3, 1})));
  EXPECT_FALSE(may_overlap_itself(view(0, {1, 4}, {0, 1})));
  EXPECT_FALSE(may_overlap_itself(view(0, {2, 0}, {0, 1})));
  EXPECT_FALSE(may_overlap_itself(view(0, {4, 4}, {1, 4})));
}

/// Against every byte written out, for all small views of two axes.
TEST(MayOverlap, AgreesWithBytesWrittenOut) {
  struct Small {
    std::int64_t offset, rows, row_stride, columns, column_stride;
  };
  std::vector<Small> all;
  for (std::int64_t rows : {1, 2, 3})
    for (std::int64_t row_stride : {0, 1, 2, 3, 5, 7})
      for (std::int64_t columns : {1, 2, 3})
        for (std::int64_t column_stride : {1, 2, 4}) {
          all.push_back({0, rows, row_stride, columns, column_stride});
          all.push_back({3, rows, row_stride, columns, column_stride});
        }
  const auto marks = [](const Small& s) {
    std::vector<int> count(64);
    for (std::int64_t i = 0; i < s.rows; ++i)
      for (std::int64_t j = 0; j < s.columns; ++j)
        ++count[static_cast<std::size_t>(s.offset + i * s.row_stride + j * s.column_stride)];
    return count;
  };
  const auto view_of = [](const Small& s) {
    return view(s.offset, {s.rows, s.columns}, {s.row_stride, s.column_stride});
  };
  for (const Small& a : all) {
    const auto marks_a = marks(a);
    const bool repeats = *std::max_element(marks_a.begin(), marks_a.end()) > 1;
    ASSERT_EQ(may_overlap_itself(view_of(a)), repeats) << describe(view_of(a));
    for (const Small& b : all) {
      const auto marks_b = marks(b);
      bool meet = false;
      for (std::size_t i = 0; i < marks_a.size(); ++i) meet |= marks_a[i] > 0 && marks_b[i] > 0;
      ASSERT_EQ(may_overlap(view_of(a), view_of(b)), meet)
          << describe(view_of(a)) << " at " << a.offset << ", " << describe(view_of(b)) << " at "
          << b.offset;
    }
  }
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
