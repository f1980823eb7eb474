// SPDX-License-Identifier: Apache-2.0
// What must hold of add3 beyond agreement with the oracle.
#include "k3/ops/add3.h"

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
  expect_bits_do_not_depend_on_threads(kOp, rows_of(90, 1001));
}

class Add3On : public MachineTest {};

/// Two additions of bf16 tensors, each in fp32 and rounded.
TEST_P(Add3On, IsTwoRoundedAdditions) {
  const Bundle input = rows_of(9, 112);
  const Tensor out = run_tested(kOp, input).tensors.at("out");
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

TEST(Add3, LargeOutputsEqualTheirParts) {
  expect_large_outputs_equal_their_parts(kOp, {"a", "b", "c"});
}

TEST(Add3, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, rows_of(4, 40), {"a", "b", "c", "out"});
}

}  // namespace
}  // namespace k3::harness
