// SPDX-License-Identifier: Apache-2.0
// What must hold of moe_topk_sum beyond agreement with the oracle.
#include "k3/ops/moe_topk_sum.h"

#include <cstring>

#include "core/bf16.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_topk_sum";

Bundle slots_of(std::int64_t T, std::int64_t topk, std::int64_t H) {
  Random random(1);
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {T, topk, H});
  b.tensors["out"] = poisoned(DType::kBF16, {T, H});
  return b;
}

TEST(MoeTopkSum, BitsDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(kOp, slots_of(9, 16, 5000));
}

class MoeTopkSumOn : public MachineTest {};

/// The order of additions is part of the contract, so every bit is.
TEST_P(MoeTopkSumOn, IsOneChainOfFp32Additions) {
  for (const std::int64_t topk : {3, 16, 21}) {
    const Bundle input = slots_of(7, topk, 520);
    const Tensor out = run_tested(kOp, input).tensors.at("out");
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      float sum = 0.0F;
      for (std::int64_t j = 0; j < topk; ++j)
        sum +=
            static_cast<float>(input.tensors.at("input").get((i / 520 * topk + j) * 520 + i % 520));
      ASSERT_EQ(static_cast<float>(out.get(i)), to_float(to_bf16(sum))) << i << " of " << topk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MoeTopkSumOn, testing::ValuesIn(machines_of(kOp)),
                         [](const auto& info) { return name_of(info.param); });

TEST(MoeTopkSum, OffsetsPastTwoToThe31Elements) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 29) + 8;  // elements between slots
  constexpr std::int64_t kT = 2;
  constexpr std::int64_t kTopk = 3;  // the last slot is past 5 * 2^29
  constexpr std::int64_t kH = 40;
  const Bundle dense = slots_of(kT, kTopk, kH);
  const Bundle reference = run_cpu(kOp, dense);
  const SparseBuffer input(kPitch * kT * kTopk * 2);
  const SparseBuffer out(kPitch * 5 * kT * 2);
  if (!input.valid() || !out.valid()) GTEST_SKIP() << "no address space of 17 GB";

  Bundle far = dense.clone();
  Call call = host_call(*find_driver(kOp), far);
  TensorView& input_view = call.tensors.at("input");
  input_view.data = input.data();
  input_view.strides[0] = kTopk * kPitch;
  input_view.strides[1] = kPitch;
  call.tensors.at("out").data = out.data();
  call.tensors.at("out").strides[0] = 5 * kPitch;
  for (std::int64_t row = 0; row < kT * kTopk; ++row)
    std::memcpy(input.at(2 * row * kPitch), dense.tensors.at("input").element(kH * row).data(),
                2 * kH);
  run_call(*find_driver(kOp), call);
  for (std::int64_t t = 0; t < kT; ++t)
    EXPECT_EQ(std::memcmp(out.at(2 * t * 5 * kPitch),
                          reference.tensors.at("out").element(kH * t).data(), 2 * kH),
              0)
        << t;
}

}  // namespace
}  // namespace k3::harness
