// SPDX-License-Identifier: Apache-2.0
// What must hold of add3 beyond agreement with the oracle.
#include "k3/ops/add3.h"

#include <cstring>

#include "core/bf16.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "add3";

Bundle rows_of(std::int64_t rows, std::int64_t D) {
  Random random(1);
  Bundle b;
  for (const char* name : {"a", "b", "c"})
    b.tensors[name] = normal(random, DType::kBF16, {rows, D});
  b.tensors["out"] = poisoned(DType::kBF16, {rows, D});
  return b;
}

TEST(Add3, BitsDoNotDependOnThreads) {
  const Bundle input = rows_of(90, 1001);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_TRUE(same_bits(one.tensors.at("out"), run_cpu(kOp, input, threads).tensors.at("out")))
        << threads;
}

class Add3On : public testing::TestWithParam<Machine> {};

/// Two additions of bf16 tensors, each in fp32 and rounded.
TEST_P(Add3On, IsTwoRoundedAdditions) {
  const auto& [on, variant] = GetParam();
  if (on == RunOn::kCuda)
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  const Bundle input = rows_of(9, 112);
  const Tensor out = run_on(on, kOp, input, variant).tensors.at("out");
  const auto value = [&](const char* name, std::int64_t i) {
    return static_cast<float>(input.tensors.at(name).get(i));
  };
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const float first = to_float(to_bf16(value("a", i) + value("b", i)));
    ASSERT_EQ(static_cast<float>(out.get(i)), to_float(to_bf16(first + value("c", i)))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Add3On, testing::ValuesIn(machines_of(kOp)),
                         [](const auto& info) { return name_of(info.param); });

TEST(Add3, InPlace) {
  const Bundle input = rows_of(5, 333);
  const Bundle apart = run_cpu(kOp, input);
  Bundle bundle = input.clone();
  Call call = host_call(*find_driver(kOp), bundle);
  call.tensors.at("out") = call.tensors.at("a");
  run_call(*find_driver(kOp), call);
  EXPECT_TRUE(same_bits(apart.tensors.at("out"), bundle.tensors.at("a")));
}

/// Large outputs are stored past the caches, from the first aligned vector on.
TEST(Add3, LargeOutputsEqualTheirParts) {
  constexpr std::int64_t kRows = 4200;
  constexpr std::int64_t kWidth = 1001;
  Random random(5);
  Bundle b;
  for (const char* name : {"a", "b", "c"})
    b.tensors[name] = repeated_normal(random, DType::kBF16, {kRows, kWidth}, kWidth);
  b.tensors["out"] = Tensor::strided(DType::kBF16, {kRows, kWidth}, {kWidth + 2, 1}, 3);
  const Bundle whole = run_cpu(kOp, b, 2);
  Bundle row;
  for (const char* name : {"a", "b", "c"}) row.tensors[name] = slice(b.tensors.at(name), 0, 0, 1);
  row.tensors["out"] = poisoned(DType::kBF16, {1, kWidth});
  const Bundle part = run_cpu(kOp, row);
  for (std::int64_t r : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2099}, kRows - 1})
    EXPECT_TRUE(same_bits(slice(whole.tensors.at("out"), 0, r, r + 1), part.tensors.at("out")))
        << r;
}

TEST(Add3, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 30) + 8;  // elements between rows
  constexpr std::int64_t kRows = 4;                             // the last one is past 3 * 2^30
  constexpr std::int64_t kD = 40;
  const Bundle dense = rows_of(kRows, kD);
  const Bundle reference = run_cpu(kOp, dense);
  const SparseBuffer a(kPitch * kRows * 2);
  const SparseBuffer b(kPitch * kRows * 2);
  const SparseBuffer c(kPitch * kRows * 2);
  const SparseBuffer out(kPitch * kRows * 2);
  if (!a.valid() || !b.valid() || !c.valid() || !out.valid())
    GTEST_SKIP() << "no address space of 34 GB";

  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  for (const auto& [name, buffer] : {std::pair{"a", &a}, {"b", &b}, {"c", &c}, {"out", &out}}) {
    call.tensors.at(name).data = buffer->data();
    call.tensors.at(name).strides[0] = kPitch;
    if (std::string(name) == "out") continue;
    for (std::int64_t row = 0; row < kRows; ++row)
      std::memcpy(buffer->at(2 * row * kPitch), dense.tensors.at(name).element(kD * row).data(),
                  2 * kD);
  }
  run_call(*find_driver(kOp), call);
  for (std::int64_t row = 0; row < kRows; ++row)
    EXPECT_EQ(std::memcmp(out.at(2 * row * kPitch),
                          reference.tensors.at("out").element(kD * row).data(), 2 * kD),
              0)
        << row;
}

}  // namespace
}  // namespace k3::harness
