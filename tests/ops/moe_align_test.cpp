// SPDX-License-Identifier: Apache-2.0
// The contract of moe_align, and what a grouped GEMM relies on.
#include "k3/ops/moe_align.h"

#include <set>

#include "tests/environment.h"
#include "tests/ops/contract_table.h"
#include "tests/ops/machines.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_align";

Bundle align(std::int64_t T, std::int64_t k, int experts, int block, std::uint64_t seed = 1) {
  Random random(seed);
  Bundle b;
  b.tensors["topk_ids"] = filled(DType::kI32, {T, k}, [&] {
    return static_cast<double>(random.next() % static_cast<std::uint64_t>(experts));
  });
  b.scalars = {{"num_experts", std::to_string(experts)}, {"block_size", std::to_string(block)}};
  find_driver(kOp)->add_outputs(b, {});
  return b;
}

class MoeAlignContract : public testing::TestWithParam<Violation> {};

TEST_P(MoeAlignContract, Refuses) {
  expect_refused(*find_driver(kOp), align(3, 4, 8, 16), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, MoeAlignContract,
    testing::Values(
        Violation{"ids_i64", "topk_ids", "must be i32", with_dtype("topk_ids", DType::kI64)},
        Violation{"experts_0", "num_experts", "must be 1 to 8192", with_scalar("num_experts", "0")},
        Violation{"experts_8193", "num_experts", "must be 1 to 8192",
                  with_scalar("num_experts", "8193")},
        Violation{"block_0", "block_size", "must be at least 1", with_scalar("block_size", "0")},
        Violation{"slots_past_31_bits", "topk_ids", "must fit 31 bits",
                  with_scalar("block_size", "2147483647")},
        Violation{"sorted_short", "sorted_ids", "must have at least 128 elements",
                  with_size("sorted_ids", 0, 127)},
        Violation{"experts_short", "expert_ids", "must have at least 8 elements",
                  with_size("expert_ids", 0, 7)},
        Violation{"num_post_2", "num_post", "must have shape [1]", with_size("num_post", 0, 2)},
        Violation{"ids_with_gaps", "topk_ids", "must be dense", with_stride("topk_ids", 0, 5)},
        Violation{"sorted_strided", "sorted_ids", "must have unit stride",
                  with_stride("sorted_ids", 0, 2)},
        Violation{"experts_strided", "expert_ids", "must have unit stride",
                  with_stride("expert_ids", 0, 2)},
        Violation{"id_past_the_experts", "topk_ids", "must be negative or an expert below 8",
                  [](Call& c) {
                    static std::int32_t ids[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0};
                    c.tensors.at("topk_ids").data = ids;
                  }}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MoeAlignContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 align(3, 4, 8, 16))),
                         violation_name);

TEST(MoeAlign, OneTokenOfSixteenExperts) {
  Bundle b = align(1, 16, 896, 64);
  const int ids[] = {700, 3, 895, 0, 41, 42, 500, 499, 501, 7, 8, 600, 9, 10, 300, 200};
  for (int j = 0; j < 16; ++j) b.tensors.at("topk_ids").set(j, ids[j]);
  const Bundle seen = run_cpu(kOp, b);
  const int by_rank[] = {3, 1, 9, 10, 12, 13, 4, 5, 15, 14, 7, 6, 8, 11, 0, 2};
  for (int rank = 0; rank < 16; ++rank) {
    EXPECT_EQ(seen.tensors.at("expert_ids").get(rank), ids[by_rank[rank]]);
    for (int i = 0; i < 64; ++i)
      ASSERT_EQ(seen.tensors.at("sorted_ids").get(64 * rank + i), i == 0 ? by_rank[rank] : 16);
  }
  EXPECT_EQ(seen.tensors.at("num_post").get(0), 16 * 64);
}

TEST(MoeAlign, OneTokenWithAnExpertTwice) {
  Bundle b = align(1, 4, 8, 2);
  for (int j = 0; j < 4; ++j) b.tensors.at("topk_ids").set(j, j == 1 ? 2 : 5);
  const Bundle seen = run_cpu(kOp, b);
  EXPECT_EQ(seen.tensors.at("expert_ids").values(), (std::vector<double>{2, 5, 5, 5}));
  EXPECT_EQ(seen.tensors.at("sorted_ids").values(), (std::vector<double>{1, 4, 0, 4, 2, 4, 3, 4}));
}

TEST(MoeAlign, Capacity) {
  EXPECT_EQ(moe_align_capacity(1, 16, 896, 64), 1024);
  EXPECT_EQ(moe_align_capacity(0, 16, 896, 64), 0);
  EXPECT_EQ(moe_align_capacity(2, 16, 896, 64), 32 * 64);
  EXPECT_EQ(moe_align_capacity(8192, 16, 896, 64), (131072 + 896 * 63) / 64 * 64);
  EXPECT_EQ(moe_align_capacity(5, 1, 1, 4), 8);
  EXPECT_EQ(moe_align_capacity(5, 1, 0, 4), 0);
  EXPECT_EQ(moe_align_capacity(INT64_MAX, INT64_MAX, 8192, 4), INT64_MAX);
}

class MoeAlignOn : public MachineTest {};

/// Each slot stands once, in a block of its own expert; a full capacity is enough for the worst.
TEST_P(MoeAlignOn, EverySlotStandsInABlockOfItsExpert) {
  for (const auto& [T, k, experts, block] : {std::tuple{1, 16, 896, 64},
                                             {64, 16, 896, 64},
                                             {7, 3, 5, 4},
                                             {500, 16, 20, 7},
                                             {1, 1, 1, 1},
                                             {3, 16, 48, 64}}) {
    const Bundle input = align(T, k, experts, block);
    Bundle seen;
    try {
      seen = run_on(GetParam().on, kOp, input, GetParam().variant);
    } catch (const UnsupportedError&) {
      continue;  // one token, or more
    }
    const Tensor& ids = seen.tensors.at("topk_ids");
    const Tensor& sorted = seen.tensors.at("sorted_ids");
    const auto num_post = static_cast<std::int64_t>(seen.tensors.at("num_post").get(0));
    EXPECT_EQ(num_post % block, 0);
    ASSERT_LE(num_post, sorted.numel());
    std::set<std::int64_t> slots;
    for (std::int64_t i = 0; i < sorted.numel(); ++i) {
      const auto slot = static_cast<std::int64_t>(sorted.get(i));
      if (slot == T * k) continue;
      ASSERT_LT(i, num_post);
      EXPECT_EQ(ids.get(slot), seen.tensors.at("expert_ids").get(i / block));
      EXPECT_TRUE(slots.insert(slot).second) << "slot " << slot << " stands twice";
    }
    EXPECT_EQ(slots.size(), static_cast<std::size_t>(T * k));
  }
}

/// Whatever device memory holds, nothing outside the outputs is written and nothing hangs.
TEST_P(MoeAlignOn, IdsPastTheExpertsAreDroppedOnADevice) {
  if (GetParam().on != RunOn::kCuda) GTEST_SKIP() << "host values are checked";
  for (const std::int64_t T : {1, 100}) {
    Bundle bad = align(T, 16, 896, 64);
    Bundle dropped = bad.clone();
    for (std::int64_t i = 0; i < T * 16; i += 3) {
      const double id = i % 2 == 0 ? 896.0 : 2147483647.0;
      bad.tensors.at("topk_ids").set(i, id);
      dropped.tensors.at("topk_ids").set(i, -1);
    }
    try {
      Bundle seen = run_on(RunOn::kCuda, kOp, bad, GetParam().variant);
      seen.tensors.erase("topk_ids");
      const Bundle expected = run_on(RunOn::kCuda, kOp, dropped, GetParam().variant);
      EXPECT_EQ(difference(seen, expected), "") << T;
    } catch (const UnsupportedError&) {
      continue;
    }
    const Environment checks("K3_DEBUG_CHECKS", "1");
    try {
      run_on(RunOn::kCuda, kOp, bad, GetParam().variant);
      ADD_FAILURE() << "not reported";
    } catch (const ContractError& error) {
      EXPECT_EQ(error.argument(), "topk_ids") << error.what();
    }
  }
}

/// The workspace need not be clean, and calls overlap.
TEST_P(MoeAlignOn, FollowsItsTensorsInAGraph) {
  if (GetParam().on != RunOn::kCuda) GTEST_SKIP();
  for (const std::int64_t T : {1, 200}) {
    const Bundle first = align(T, 16, 896, 64, 1);
    const Bundle second = align(T, 16, 896, 64, 2);
    try {
      DeviceBundle tensors(first);
      const DeviceCall call = {find_driver(kOp), tensors.call(), GetParam().variant};
      const DeviceCall calls[] = {call, call, call};
      DeviceGraph graph(calls);
      Bundle seen = first.clone();
      for (const Bundle* input : {&first, &second, &first}) {
        tensors.upload(*input);
        graph.replay();
        tensors.download(seen);
        EXPECT_EQ(difference(run_cpu(kOp, *input), seen), "") << T;
      }
    } catch (const UnsupportedError&) {
      continue;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MoeAlignOn, testing::ValuesIn(machines_of(kOp)),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace k3::harness
