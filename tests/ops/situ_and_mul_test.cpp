// SPDX-License-Identifier: Apache-2.0
// What must hold of situ_and_mul beyond agreement with the oracle.
#include "k3/ops/situ_and_mul.h"

#include <cstring>

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
  const Bundle input = rows_of(9, 1000);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_TRUE(same_bits(one.tensors.at("out"), run_cpu(kOp, input, threads).tensors.at("out")))
        << threads;
}

TEST(SituAndMul, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;  // elements between rows
  constexpr std::int64_t kRows = 4;                             // the last one is past 3 * 2^30
  constexpr std::int64_t kD = 40;
  const Bundle dense = rows_of(kRows, kD);
  const Bundle reference = run_cpu(kOp, dense);
  const SparseBuffer input(static_cast<std::size_t>(kPitch * kRows) * 2);
  const SparseBuffer out(static_cast<std::size_t>(kPitch * kRows) * 2);
  if (!input.valid() || !out.valid()) GTEST_SKIP() << "no address space of 16 GiB";

  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  for (const auto& [name, buffer] : {std::pair{"input", &input}, {"out", &out}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[0] = kPitch;
  }
  for (std::int64_t row = 0; row < kRows; ++row)
    std::memcpy(input.at(2 * row * kPitch), dense.tensors.at("input").element(2 * kD * row).data(),
                2 * 2 * kD);
  run_call(*find_driver(kOp), call);
  for (std::int64_t row = 0; row < kRows; ++row)
    EXPECT_EQ(std::memcmp(out.at(2 * row * kPitch),
                          reference.tensors.at("out").element(kD * row).data(), 2 * kD),
              0)
        << row;
}

}  // namespace
}  // namespace k3::harness
