// SPDX-License-Identifier: Apache-2.0
// What must hold of situ_mul_quant beyond agreement with the oracle.
#include "k3/ops/situ_mul_quant.h"

#include <cstring>

#include "k3/error.h"
#include "tests/environment.h"
#include "tests/ops/far_on_device.h"
#include "tests/ops/machines.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "situ_mul_quant";
constexpr std::int64_t kTp = 7;
constexpr std::int64_t kN = 384;

Bundle experts_of(const std::vector<std::int64_t>& live, std::uint64_t seed = 1) {
  Random random(seed);
  const auto E = static_cast<std::int64_t>(live.size());
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {E, kTp, 2 * kN}, 2.0);
  b.tensors["masked_m"] = integers(DType::kI32, live);
  b.tensors["output_q"] = poisoned(DType::kF8E4M3, {E, kTp, kN});
  b.tensors["output_s"] = poisoned(DType::kI32, {E, 1, kTp});
  b.scalars = {{"scale_ue8m0", "1"}, {"transposed", "1"}};
  return b;
}

Bundle dense_of(std::int64_t rows) {
  Random random(1);
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {rows, 2 * kN}, 2.0);
  b.tensors["output_q"] = poisoned(DType::kF8E4M3, {rows, kN});
  b.tensors["output_s"] = poisoned(DType::kF32, {rows, kN / 128});
  return b;
}

TEST(SituMulQuant, BitsDoNotDependOnThreads) {
  const Bundle input = experts_of({3, 0, 7, 1, 5, 5, 0});
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_EQ(difference(one, run_cpu(kOp, input, threads)), "") << threads;
}

/// Each machine by itself: a row's codes hang on nothing but the row.
TEST(SituMulQuant, RowsOfExpertsAreRowsOfTheDenseForm) {
  Bundle masked = experts_of({3, 0, 7});
  masked.tensors["output_s"] = poisoned(DType::kF32, {3, kTp, kN / 128});
  masked.scalars = {};
  Bundle dense = dense_of(3 * kTp);
  std::memcpy(dense.tensors.at("input").storage(), masked.tensors.at("input").storage(),
              dense.tensors.at("input").storage_bytes());
  masked = run_cpu(kOp, masked);
  dense = run_cpu(kOp, dense);
  for (const char* name : {"output_q", "output_s"})
    for (std::int64_t row = 0; row < 3 * kTp; ++row) {
      const auto of_expert = piece(masked.tensors.at(name), row, 3 * kTp);
      const bool live = row % kTp < masked.tensors.at("masked_m").get(row / kTp);
      const auto of_dense = piece(dense.tensors.at(name), row, 3 * kTp);
      EXPECT_EQ(std::ranges::equal(of_expert, of_dense), live) << name << row;
    }
}

TEST(SituMulQuant, RoundedItIsTheTwoOpsItJoins) {
  for (const char* ue8m0 : {"0", "1"}) {
    Bundle joined = dense_of(9);
    joined.scalars = {{"round_to_bf16", "1"}, {"scale_ue8m0", ue8m0}};
    Bundle activated;
    activated.tensors["input"] = joined.tensors.at("input");
    activated.tensors["out"] = poisoned(DType::kBF16, {9, kN});
    activated.scalars = {{"beta", "4"}, {"linear_beta", "25"}};
    Bundle quantised = dense_of(9);
    quantised.tensors["input"] = run_cpu("situ_and_mul", activated).tensors.at("out");
    quantised.scalars = {{"group_size", "128"}, {"scale_ue8m0", ue8m0}};
    joined = run_cpu(kOp, joined);
    quantised = run_cpu("per_token_group_quant", quantised);
    for (const char* name : {"output_q", "output_s"})
      EXPECT_TRUE(same_bits(joined.tensors.at(name), quantised.tensors.at(name))) << name;
  }
}

TEST(SituMulQuant, SwizzleIsAnOrderOfColumns) {
  const Bundle plain = dense_of(4);
  Bundle swizzled = plain.clone();
  swizzled.scalars = {{"swizzle", "1"}};
  for (std::int64_t i = 0; i < 4 * kN; ++i) {
    const std::int64_t row = i / kN * 2 * kN;
    const std::int64_t c = i % kN;
    Tensor& to = swizzled.tensors.at("input");
    to.set(row + c / 8 * 16 + c % 8, plain.tensors.at("input").get(row + c));
    to.set(row + c / 8 * 16 + c % 8 + 8, plain.tensors.at("input").get(row + kN + c));
  }
  const Bundle a = run_cpu(kOp, plain);
  const Bundle b = run_cpu(kOp, swizzled);
  for (const char* name : {"output_q", "output_s"})
    EXPECT_TRUE(same_bits(a.tensors.at(name), b.tensors.at(name))) << name;
}

TEST(SituMulQuant, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree(kOp, experts_of({2, 7, 0, 3}), {"input", "output_q", "output_s"});
}

class SituMulQuantOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
};

TEST_F(SituMulQuantOnDevice, on_cuda_GraphsFollowTheList) {
  for (const std::string& variant : variants_of(kOp, RunOn::kCuda)) {
    const Bundle first = experts_of({3, 0, 7, 1}, 1);
    DeviceBundle tensors(first);
    const DeviceCall call = {find_driver(kOp), tensors.call(), variant};
    DeviceGraph graph({&call, 1});
    Bundle seen = first.clone();
    for (const Bundle& input : {experts_of({0, 0, 0, 0}, 2), experts_of({7, 7, 7, 7}, 3), first}) {
      tensors.upload(input);
      graph.replay();
      tensors.download(seen);
      EXPECT_EQ(difference(run_on(RunOn::kCuda, kOp, input, variant), seen), "") << variant;
    }
  }
}

TEST_F(SituMulQuantOnDevice, on_cuda_BadCountsAreHeldToTheRowsAndReported) {
  const Bundle good = experts_of({0, 3, 7, 2});
  Bundle bad = good.clone();
  bad.tensors.at("masked_m").set(0, -5);
  bad.tensors.at("masked_m").set(2, 2147483647.0);
  for (const std::string& variant : variants_of(kOp, RunOn::kCuda)) {
    Bundle expected = run_on(RunOn::kCuda, kOp, good, variant);
    expected.tensors["masked_m"] = bad.tensors.at("masked_m").clone();
    EXPECT_EQ(difference(expected, run_on(RunOn::kCuda, kOp, bad, variant)), "") << variant;
  }
  const Environment checks("K3_DEBUG_CHECKS", "1");
  EXPECT_NO_THROW(run_on(RunOn::kCuda, kOp, good));
  EXPECT_THROW(run_on(RunOn::kCuda, kOp, bad), ContractError);
}

TEST_F(SituMulQuantOnDevice, on_cuda_OffsetsPastTwoToThe31Elements) {
  for (const std::string& variant : variants_of(kOp, RunOn::kCuda))
    expect_same_far_apart(kOp, experts_of({2, 7, 0, 3}), {"input", "output_q", "output_s"},
                          (std::int64_t{1} << 30) + 16, variant);
}

/// One launch reads what the last one wrote: the list, and the rows.
TEST_F(SituMulQuantOnDevice, on_cuda_LaunchesWaitForTheLastOne) {
  constexpr std::int64_t kE = 64;
  const Bundle input = experts_of(std::vector<std::int64_t>(kE, kTp));
  const std::vector<std::int64_t> widths = {kE, kTp, 2 * kN};
  const Bundle expected = run_on(RunOn::kCuda, kOp, input);
  // The input of the op under test is the output of another: gate and up, of twice the width.
  Bundle source;
  Random random(5);
  source.tensors["input"] = normal(random, DType::kBF16, {kE, kTp, 4 * kN}, 2.0);
  source.tensors["out"] = poisoned(DType::kBF16, widths);
  source.scalars = {{"beta", "4"}, {"linear_beta", "25"}};
  Bundle chained = input.clone();
  chained.tensors["input"] = run_on(RunOn::kCuda, "situ_and_mul", source).tensors.at("out");
  const Bundle wanted = run_on(RunOn::kCuda, kOp, chained);
  ASSERT_NE(difference(expected, wanted), "");

  DeviceBundle tensors(input);
  DeviceBundle producer(source);
  Call produce = producer.call();
  produce.tensors["out"] = tensors.call().tensor("input");
  std::vector<DeviceCall> calls;
  for (int round = 0; round < 8; ++round) {
    calls.push_back({find_driver("situ_and_mul"), produce, ""});
    calls.push_back({find_driver(kOp), tensors.call(), ""});
  }
  DeviceGraph graph(calls);
  Bundle seen = input.clone();
  for (int replay = 0; replay < 20; ++replay) {
    tensors.upload(input);
    graph.replay();
    tensors.download(seen);
    ASSERT_EQ(difference(wanted, seen), "") << replay;
  }
}

}  // namespace
}  // namespace k3::harness
