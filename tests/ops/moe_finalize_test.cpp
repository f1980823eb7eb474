// SPDX-License-Identifier: Apache-2.0
// What must hold of moe_finalize beyond agreement with the oracle.
#include "k3/ops/moe_finalize.h"

#include <cmath>
#include <limits>

#include "core/bf16.h"
#include "tests/environment.h"
#include "tests/ops/contract_table.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_finalize";
constexpr std::int64_t kH = 264;

Bundle slots_of(std::int64_t T, std::int64_t topk, std::int64_t P, DType weights = DType::kBF16) {
  Random random(1);
  Bundle b;
  b.tensors["experts_out"] = normal(random, DType::kBF16, {P, kH});
  b.tensors["idx"] = filled(DType::kI32, {T, topk}, [&] {
    return static_cast<double>(random.next() % static_cast<std::uint64_t>(P + 1)) - 1.0;
  });
  b.tensors["topk_weights"] = uniform(random, weights, {T, topk}, 0.0, 0.5);
  b.tensors["out"] = poisoned(DType::kBF16, {T, kH});
  return b;
}

TEST(MoeFinalize, BitsDoNotDependOnThreads) {
  expect_bits_do_not_depend_on_threads(kOp, slots_of(200, 16, 300));
}

class MoeFinalizeOn : public MachineTest {
 protected:
  static Tensor run(const Bundle& input) { return run_tested(kOp, input).tensors.at("out"); }
};

/// The order of additions is part of the contract, so with weights whose products fp32 holds every
/// bit is.
TEST_P(MoeFinalizeOn, IsOneChainOfFp32MultiplyAdds) {
  for (const std::int64_t topk : {3, 16, 21}) {
    const Bundle input = slots_of(7, topk, 50);
    const Tensor out = run(input);
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      float sum = 0.0F;
      for (std::int64_t j = 0; j < topk; ++j) {
        const std::int64_t slot = i / kH * topk + j;
        const auto row = static_cast<std::int64_t>(input.tensors.at("idx").get(slot));
        if (row < 0) continue;
        sum = std::fma(static_cast<float>(input.tensors.at("topk_weights").get(slot)),
                       static_cast<float>(input.tensors.at("experts_out").get(row * kH + i % kH)),
                       sum);
      }
      ASSERT_EQ(static_cast<float>(out.get(i)), to_float(to_bf16(sum))) << i << " of " << topk;
    }
  }
}

/// Device memory is not checked: an index past the rows counts as dropped.
TEST_P(MoeFinalizeOn, IndicesPastTheRowsOfADeviceAreDropped) {
  if (GetParam().on != RunOn::kCuda) GTEST_SKIP() << "host memory is checked";
  Bundle dropped = slots_of(5, 16, 30);
  Bundle past = dropped.clone();
  const std::int64_t bad[] = {30, 31, 1 << 20, std::numeric_limits<std::int32_t>::max()};
  for (std::int64_t i = 0; i < 80; i += 3) {
    dropped.tensors.at("idx").set(i, -1.0);
    past.tensors.at("idx").set(i, static_cast<double>(bad[i % 4]));
  }
  EXPECT_TRUE(same_bits(run(dropped), run(past)));
}

TEST_P(MoeFinalizeOn, DebugChecksReadTheIndicesOfADevice) {
  if (GetParam().on != RunOn::kCuda) GTEST_SKIP() << "host memory is always checked";
  const Environment debug("K3_DEBUG_CHECKS", "1");
  Bundle shared = slots_of(2, 4, 30);
  shared.tensors.at("idx").fill(7.0);  // every slot names one row, which is fine
  EXPECT_NO_THROW(static_cast<void>(run(shared)));
  shared.tensors.at("idx").set(5, 30.0);
  expect_refused([&] { static_cast<void>(run(shared)); }, "idx", "a row below 30");
}

INSTANTIATE_TEST_SUITE_P(All, MoeFinalizeOn, testing::ValuesIn(machines_of(kOp)),
                         [](const auto& info) { return name_of(info.param); });

/// One token of one slot is moe_topk_sum's inverse of a gather: with weights of 1 it copies rows.
TEST(MoeFinalize, WeightsOfOneCopyRows) {
  Bundle input = slots_of(40, 1, 50);
  input.tensors.at("topk_weights").fill(1.0);
  const Tensor out = run_cpu(kOp, input).tensors.at("out");
  for (std::int64_t t = 0; t < 40; ++t) {
    const auto row = static_cast<std::int64_t>(input.tensors.at("idx").get(t));
    for (std::int64_t h = 0; h < kH; ++h)
      ASSERT_EQ(out.get(t * kH + h),
                row < 0 ? 0.0 : input.tensors.at("experts_out").get(row * kH + h));
  }
}

TEST(MoeFinalize, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, slots_of(4, 6, 4), {"experts_out", "out"});
}

}  // namespace
}  // namespace k3::harness
