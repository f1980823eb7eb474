// SPDX-License-Identifier: Apache-2.0
// What must hold of situ_and_mul beyond agreement with the oracle.
#include "k3/ops/situ_and_mul.h"

#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "situ_and_mul";

Bundle rows_of(std::int64_t rows, std::int64_t D) {
  Random random(1);
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {rows, 2 * D}, 3.0);
  b.tensors["out"] = poisoned(DType::kBF16, {rows, D});
  b.scalars = {{"beta", "4"}, {"linear_beta", "25"}};
  return b;
}

TEST(SituAndMul, BitsDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(kOp, rows_of(9, 1000));
}

TEST(SituAndMul, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, rows_of(4, 40), {"input", "out"});
}

}  // namespace
}  // namespace k3::harness
