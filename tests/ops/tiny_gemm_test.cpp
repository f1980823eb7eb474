// SPDX-License-Identifier: Apache-2.0
// What must hold of tiny_gemm beyond agreement with the oracle.
#include "k3/ops/tiny_gemm.h"

#include <cstring>

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
  const Bundle input = product_of(5, 333, 1000);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_TRUE(same_bits(one.tensors.at("out"), run_cpu(kOp, input, threads).tensors.at("out")))
        << threads;
}

class TinyGemmOn : public testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    if (GetParam().on != RunOn::kCuda) return;
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
  [[nodiscard]] Tensor run(const Bundle& input) const {
    return run_on(GetParam().on, kOp, input, GetParam().variant).tensors.at("out");
  }
};

/// A row of out is the same alone and in the company of any others.
TEST_P(TinyGemmOn, RowsDoNotKnowEachOther) {
  struct Size {
    std::int64_t N;
    std::int64_t K;
  };
  for (const auto [N, K] :
       {Size{57, 128}, {57, 256}, {57, 2000}, {57, 7168}, {400, 2000}, {780, 2000}, {780, 8000}}) {
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
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;  // elements between rows
  constexpr std::int64_t kRows = 4;                             // the last one is past 3 * 2^30
  constexpr std::int64_t kK = 40;
  const Bundle dense = product_of(kRows, kRows, kK);
  const Bundle reference = run_cpu(kOp, dense);
  const SparseBuffer x(kPitch * kRows * 2);
  const SparseBuffer w(kPitch * kRows * 2);
  const SparseBuffer out(kPitch * kRows * 4);
  if (!x.valid() || !w.valid() || !out.valid()) GTEST_SKIP() << "no address space of 34 GB";

  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  for (const auto& [name, buffer] : {std::pair{"x", &x}, {"w", &w}, {"out", &out}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[0] = kPitch;
  }
  for (std::int64_t row = 0; row < kRows; ++row)
    for (const auto& [name, buffer] : {std::pair{"x", &x}, {"w", &w}})
      std::memcpy(buffer->at(2 * row * kPitch), dense.tensors.at(name).element(kK * row).data(),
                  2 * kK);
  run_call(*find_driver(kOp), call);
  for (std::int64_t row = 0; row < kRows; ++row)
    EXPECT_EQ(std::memcmp(out.at(4 * row * kPitch),
                          reference.tensors.at("out").element(kRows * row).data(), 4 * kRows),
              0)
        << row;
}

}  // namespace
}  // namespace k3::harness
