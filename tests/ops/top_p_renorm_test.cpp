// SPDX-License-Identifier: Apache-2.0
// What must hold of top_p_renorm beyond agreement with the oracle.
#include "k3/ops/top_p_renorm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/ops/probabilities.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "top_p_renorm";

Bundle rows_of(std::int64_t B, std::int64_t V, const char* top_p = "0.8") {
  Random random(1);
  Bundle b;
  b.tensors["probs"] = random_probabilities(random, B, V);
  b.tensors["out"] = poisoned(DType::kF32, {B, V});
  b.scalars = {{"top_p", top_p}};
  return b;
}

TEST(TopPRenorm, BitsDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(kOp, rows_of(40, 1001));
}

class TopPRenormOn : public MachineTest {
 protected:
  static Tensor run(const Bundle& input) { return run_tested(kOp, input).tensors.at("out"); }
};

/// Masses are integers, so no order of additions shows.
TEST_P(TopPRenormOn, HasTheBitsOfOneThreadOfTheCpu) {
  for (const std::int64_t V : {40, 1024, 5000, 40000, 163840, 300000}) {
    const Bundle input = rows_of(2, V, "0.9");
    EXPECT_TRUE(same_bits(run(input), run_cpu(kOp, input, 1).tensors.at("out"))) << V;
  }
}

/// The values come out in any order with the same results.
TEST_P(TopPRenormOn, ReversedRowsGiveReversedResults) {
  constexpr std::int64_t kV = 12344;
  const Bundle input = rows_of(1, kV);
  Bundle reversed = input.clone();
  for (std::int64_t i = 0; i < kV; ++i)
    reversed.tensors.at("probs").set(i, input.tensors.at("probs").get(kV - 1 - i));
  const Tensor forward = run(input);
  const Tensor backward = run(reversed);
  for (std::int64_t i = 0; i < kV; ++i) ASSERT_EQ(forward.get(i), backward.get(kV - 1 - i)) << i;
}

/// What is kept is a set of largest values, of a mass of top_p, and of no less without its
/// smallest.
TEST_P(TopPRenormOn, KeepsTheSmallestSetThatHasTheMass) {
  constexpr std::int64_t kV = 20000;
  for (const double top_p : {0.1, 0.5, 0.99}) {
    const Bundle input = rows_of(1, kV, std::to_string(top_p).c_str());
    const Tensor& probs = input.tensors.at("probs");
    const Tensor out = run(input);
    double kept = 0.0;
    double sum = 0.0;
    double smallest_kept = 1.0;
    double largest_dropped = 0.0;
    for (std::int64_t i = 0; i < kV; ++i) {
      sum += out.get(i);
      if (out.get(i) == 0.0) {
        largest_dropped = std::max(largest_dropped, probs.get(i));
      } else {
        kept += probs.get(i);
        smallest_kept = std::min(smallest_kept, probs.get(i));
      }
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
    EXPECT_LT(largest_dropped, smallest_kept);
    EXPECT_GE(kept, top_p - 1e-6);
    EXPECT_LT(kept - smallest_kept, top_p + 1e-6);
  }
}

TEST_P(TopPRenormOn, RowsDoNotKnowEachOther) {
  Bundle input = rows_of(6, 700, "");
  input.tensors["top_ps"] = constant(DType::kF32, {6}, 0.9);
  const Tensor apart = run(input);
  for (std::int64_t i = 0; i < 700; ++i)
    input.tensors.at("probs").set(2 * 700 + i, std::numeric_limits<double>::quiet_NaN());
  input.tensors.at("top_ps").set(2, 0.1);
  const Tensor beside = run(input);
  for (std::int64_t row : {0, 1, 3, 4, 5})
    EXPECT_TRUE(same_bits(slice(apart, 0, row, row + 1), slice(beside, 0, row, row + 1))) << row;
  for (std::int64_t i = 0; i < 700; ++i) ASSERT_EQ(beside.get(2 * 700 + i), 0.0) << i;
}

/// Device memory is not checked: bad values of top_ps count as the nearest good one, NaN as 1.
TEST_P(TopPRenormOn, TopPsOfADeviceAreHeldInRange) {
  if (GetParam().on != RunOn::kCuda) GTEST_SKIP() << "host memory is checked";
  Bundle bad = rows_of(5, 3000, "");
  Bundle good = bad.clone();
  const double inf = std::numeric_limits<double>::infinity();
  const double bads[] = {std::nan(""), 7.0, inf, -3.0, 0.0};
  const double goods[] = {1.0, 1.0, 1.0, 1e-38, 1e-38};
  bad.tensors["top_ps"] = Tensor::dense(DType::kF32, {5});
  good.tensors["top_ps"] = Tensor::dense(DType::kF32, {5});
  for (std::int64_t i = 0; i < 5; ++i) {
    bad.tensors.at("top_ps").set(i, bads[i]);
    good.tensors.at("top_ps").set(i, goods[i]);
  }
  EXPECT_TRUE(same_bits(run(bad), run(good)));
}

INSTANTIATE_TEST_SUITE_P(All, TopPRenormOn, testing::ValuesIn(machines_of(kOp)),
                         [](const auto& info) { return name_of(info.param); });

TEST(TopPRenorm, InPlace) {
  const Bundle input = rows_of(5, 333);
  const Bundle apart = run_cpu(kOp, input);
  Bundle bundle = input.clone();
  Call call = host_call(*find_driver(kOp), bundle);
  call.tensors.at("out") = call.tensors.at("probs");
  run_call(*find_driver(kOp), call);
  EXPECT_TRUE(same_bits(apart.tensors.at("out"), bundle.tensors.at("probs")));
}

TEST(TopPRenorm, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, rows_of(4, 40), {"probs", "out"});
}

}  // namespace
}  // namespace k3::harness
