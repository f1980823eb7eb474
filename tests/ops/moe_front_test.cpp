// SPDX-License-Identifier: Apache-2.0
// The contracts of moe_front and of its epilogue, and how the two belong together.
#include "k3/ops/moe_front.h"

#include <cmath>
#include <thread>
#include <vector>

#include "harness/ops/moe_router.h"
#include "tests/ops/contract_table.h"
#include "tests/ops/machines.h"

namespace k3::harness {
namespace {

Bundle front(std::int64_t T, std::int64_t H, std::int64_t E, std::int64_t L, std::int64_t k,
             std::uint64_t seed = 1) {
  Random random(seed);
  Bundle b;
  b.tensors["hidden"] = normal(random, DType::kBF16, {T, H});
  b.tensors["weight"] =
      normal(random, DType::kBF16, {E + L, H}, 1.5 / std::sqrt(static_cast<double>(H)));
  b.tensors["bias"] = normal(random, DType::kF32, {E}, 0.1);
  b.tensors["topk_weights"] = poisoned(DType::kF32, {T, k});
  b.tensors["topk_ids"] = poisoned(DType::kI32, {T, k});
  b.tensors["routed"] = poisoned(DType::kBF16, {T, L});
  set_router_scalars(b, {.k = k});
  return b;
}

Bundle epilogue(std::int64_t T, std::int64_t E, std::int64_t L, std::int64_t k) {
  const RouterShape shape = {.T = T, .E = E, .k = k, .scores = DType::kF32, .columns_behind = L};
  Bundle b;
  draw_router(b, shape, 1, "merged");
  b.tensors["routed"] = poisoned(DType::kBF16, {T, L});
  set_router_scalars(b, shape);
  return b;
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";

class MoeFrontContract : public testing::TestWithParam<Violation> {};

TEST_P(MoeFrontContract, Refuses) {
  expect_refused(*find_driver("moe_front"), front(3, 20, 12, 6, 4), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, MoeFrontContract,
    testing::Values(
        Violation{"hidden_f32", "hidden", "must be bf16", with_dtype("hidden", DType::kF32)},
        Violation{"weight_columns", "weight", "must have shape [E+L, H]",
                  with_size("weight", 1, 19)},
        Violation{"weight_without_all_experts", "weight", "must have rows for all experts",
                  with_size("weight", 0, 11)},
        Violation{"no_hidden", "hidden", "must have at least one column",
                  [](Call& c) {
                    with_size("hidden", 1, 0)(c);
                    with_size("weight", 1, 0)(c);
                  }},
        Violation{"routed_columns", "routed", "must have shape [T, L]", with_size("routed", 1, 5)},
        Violation{"routed_rows", "routed", "must have shape [T, L]", with_size("routed", 0, 2)},
        Violation{"ids_rows", "topk_ids", "must have shape [T, topk]", with_size("topk_ids", 0, 2)},
        Violation{"topk_13", "topk", "must not be more than there are experts",
                  with_scalar("topk", "13")},
        Violation{"rows_past_any_workspace", "hidden", "must not have more rows than",
                  [](Call& c) {
                    with_size("hidden", 0, std::int64_t{1} << 53)(c);
                    with_stride("hidden", 0, 0)(c);
                  }},
        Violation{"hidden_strided", "hidden", kUnitStride, with_stride("hidden", 1, 2)},
        Violation{"weight_strided", "weight", kUnitStride, with_stride("weight", 1, 2)},
        Violation{"routed_strided", "routed", kUnitStride, with_stride("routed", 1, 2)},
        Violation{"scale_inf", "routed_scaling_factor", "must be finite",
                  with_scalar("routed_scaling_factor", "inf")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MoeFrontContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("moe_front"),
                                                                 front(3, 20, 12, 6, 4))),
                         violation_name);

TEST(MoeFront, WorkspaceIsChecked) {
  expect_workspace_checked(*find_driver("moe_front"), front(3, 20, 12, 6, 4));
}

class MoeFrontEpilogueContract : public testing::TestWithParam<Violation> {};

TEST_P(MoeFrontEpilogueContract, Refuses) {
  expect_refused(*find_driver("moe_front_epilogue"), epilogue(3, 12, 6, 4), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, MoeFrontEpilogueContract,
    testing::Values(
        Violation{"merged_bf16", "merged", "must be f32", with_dtype("merged", DType::kBF16)},
        Violation{"merged_narrow", "merged", "must have columns for all experts",
                  with_size("merged", 1, 11)},
        Violation{"routed_columns", "routed", "must have shape [T, L]", with_size("routed", 1, 7)},
        Violation{"merged_strided", "merged", kUnitStride, with_stride("merged", 1, 2)},
        Violation{"routed_strided", "routed", kUnitStride, with_stride("routed", 1, 2)},
        Violation{"topk_0", "topk", "must be 1 to 64", with_scalar("topk", "0")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MoeFrontEpilogueContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("moe_front_epilogue"),
                                                                 epilogue(3, 12, 6, 4))),
                         violation_name);

TEST(MoeFront, BitsDoNotDependOnThreads) {
  const Bundle input = front(37, 300, 896, 130, 16);
  const Bundle one = run_cpu("moe_front", input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_EQ(difference(one, run_cpu("moe_front", input, threads)), "") << threads;
  const Bundle tail = epilogue(100, 896, 500, 16);
  const Bundle tail_of_one = run_cpu("moe_front_epilogue", tail, 1);
  for (int threads : {2, 3, 16})
    EXPECT_EQ(difference(tail_of_one, run_cpu("moe_front_epilogue", tail, threads)), "") << threads;
}

TEST(MoeFront, ATokenDoesNotDependOnTheBatchOnTheCpu) {
  const Bundle input = front(35, 260, 896, 70, 16);
  const Bundle all = run_cpu("moe_front", input);
  for (const std::int64_t t : {0, 17, 34}) {
    Bundle one = input.clone();
    for (const char* name : {"hidden", "topk_weights", "topk_ids", "routed"})
      one.tensors[name] = slice(input.tensors.at(name), 0, t, t + 1);
    const Bundle seen = run_cpu("moe_front", one);
    for (const char* name : {"topk_weights", "topk_ids", "routed"})
      EXPECT_TRUE(same_bits(seen.tensors.at(name), slice(all.tensors.at(name), 0, t, t + 1)))
          << name << " " << t;
  }
}

class MoeFrontEpilogueOn : public MachineTest {};

/// Its router is moe_route_topk, bit for bit, ties and NaN included.
TEST_P(MoeFrontEpilogueOn, RoutesAsTheRouterAlone) {
  const auto& [on, variant] = GetParam();
  for (const RouterEdit& edit : router_edits())
    for (const bool sorted : {false, true}) {
      RouterShape shape = {.T = 6, .scores = DType::kF32, .sorted = sorted};
      Bundle alone;
      draw_router(alone, shape, 8, edit);
      set_router_scalars(alone, shape);
      alone.scalars["sorted"] = sorted ? "1" : "0";
      Bundle whole = alone.clone();
      whole.tensors.erase("scores");
      whole.tensors["merged"] = Tensor::dense(DType::kF32, {6, 896 + 64});
      for (std::int64_t i = 0; i < 6 * 896; ++i)
        whole.tensors.at("merged").set(i / 896 * 960 + i % 896, alone.tensors.at("scores").get(i));
      whole.tensors["routed"] = poisoned(DType::kBF16, {6, 64});
      const Bundle seen = run_on(on, "moe_front_epilogue", whole, variant);
      const Bundle expected = run_on(on, "moe_route_topk", alone);
      for (const char* name : {"topk_weights", "topk_ids"})
        EXPECT_TRUE(same_bits(seen.tensors.at(name), expected.tensors.at(name)))
            << name << " " << edit.name;
    }
}

INSTANTIATE_TEST_SUITE_P(All, MoeFrontEpilogueOn,
                         testing::ValuesIn(machines_of("moe_front_epilogue")),
                         [](const auto& info) { return name_of(info.param); });

class MoeFrontDevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
};

/// The first use of a library while a graph is captured, the workspace full of NaN.
TEST_P(MoeFrontDevice, IsCapturedAndFollowsItsTensors) {
  const Bundle first = front(33, 512, 896, 256, 16, 1);
  const Bundle second = front(33, 512, 896, 256, 16, 2);
  try {
    DeviceBundle tensors(first);
    const DeviceCall call = {find_driver("moe_front"), tensors.call(), GetParam()};
    const DeviceCall calls[] = {call, call};
    DeviceGraph graph(calls);
    Bundle seen = first.clone();
    for (const Bundle* input : {&first, &second, &first, &second}) {
      tensors.upload(*input);
      graph.replay();
      tensors.download(seen);
      EXPECT_EQ(difference(run_on(RunOn::kCuda, "moe_front", *input, GetParam()), seen), "");
    }
  } catch (const UnsupportedError& error) {
    GTEST_SKIP() << error.what();
  }
}

TEST_P(MoeFrontDevice, GivesTheSameBitsEveryTimeAndFromEveryThread) {
  for (const std::int64_t T : {1, 5, 70}) {
    const Bundle input = front(T, 7168, 896, 512, 16);
    try {
      const Bundle expected = run_on(RunOn::kCuda, "moe_front", input, GetParam());
      std::vector<std::string> seen(4);
      std::vector<std::thread> threads;
      for (std::string& difference_seen : seen)
        threads.emplace_back([&] {
          for (int i = 0; i < 3 && difference_seen.empty(); ++i)
            difference_seen =
                difference(expected, run_on(RunOn::kCuda, "moe_front", input, GetParam()));
        });
      for (std::thread& thread : threads) thread.join();
      for (const std::string& difference_seen : seen) EXPECT_EQ(difference_seen, "") << T;
    } catch (const UnsupportedError& error) {
      GTEST_SKIP() << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MoeFrontDevice,
                         testing::ValuesIn(variants_of("moe_front", RunOn::kCuda)),
                         [](const auto& info) { return "on_cuda_" + info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MoeFrontDevice);

TEST(MoeFrontEpilogue, OffsetsPastTwoToThe31Elements) {
  expect_far_pieces_agree("moe_front_epilogue", epilogue(3, 896, 72, 16), {"merged", "routed"});
}

}  // namespace
}  // namespace k3::harness
