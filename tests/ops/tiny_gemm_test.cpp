// SPDX-License-Identifier: Apache-2.0
// What must hold of tiny_gemm beyond agreement with the oracle.
#include "k3/ops/tiny_gemm.h"

#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "tiny_gemm";

Bundle product_of(std::int64_t M, std::int64_t N, std::int64_t K, DType out = DType::kF32) {
  Random random(1);
  Bundle b;
  b.tensors["x"] = normal(random, DType::kBF16, {M, K});
  b.tensors["w"] = normal(random, DType::kBF16, {N, K});
  b.tensors["out"] = poisoned(out, {M, N});
  return b;
}

TEST(TinyGemm, BitsDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(kOp, product_of(5, 333, 1000));
}

class TinyGemmOn : public MachineTest {
 protected:
  static Tensor run(const Bundle& input) { return run_tested(kOp, input).tensors.at("out"); }
};

/// A row of out is the same alone and in the company of any others.
TEST_P(TinyGemmOn, RowsDoNotKnowEachOther) {
  struct Size {
    std::int64_t N;
    std::int64_t K;
  };
  for (const auto [N, K] : {Size{57, 128},
                            {57, 256},
                            {57, 2000},
                            {57, 7168},
                            {256, 2000},
                            {400, 2000},
                            {780, 2000},
                            {780, 8000}}) {
    if (GetParam().variant == "columns" && K > 256) continue;
    const Bundle all = product_of(16, N, K);
    const Tensor whole = run(all);
    for (std::int64_t M : {1, 2, 8, 9, 15})
      for (const std::int64_t first : {std::int64_t{0}, 16 - M}) {
        Bundle part = all;
        part.tensors["x"] = slice(all.tensors.at("x"), 0, first, first + M);
        part.tensors["out"] = poisoned(DType::kF32, {M, N});
        EXPECT_TRUE(same_bits(run(part), slice(whole, 0, first, first + M)))
            << "N " << N << ", K " << K << ", rows " << first << " to " << first + M;
      }
  }
}

/// The bf16 result is the rounded fp32 one.
TEST_P(TinyGemmOn, OneRoundingAtTheEnd) {
  const Tensor exact = run(product_of(7, 40, 256));
  Tensor rounded = Tensor::dense(DType::kBF16, {7, 40});
  for (std::int64_t i = 0; i < exact.numel(); ++i) rounded.set(i, exact.get(i));
  EXPECT_TRUE(same_bits(run(product_of(7, 40, 256, DType::kBF16)), rounded));
}

INSTANTIATE_TEST_SUITE_P(All, TinyGemmOn, testing::ValuesIn(machines_of(kOp)),
                         [](const auto& info) { return name_of(info.param); });

TEST(TinyGemm, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, product_of(4, 4, 40), {"x", "w", "out"});
}

}  // namespace
}  // namespace k3::harness
