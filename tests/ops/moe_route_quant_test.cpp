// SPDX-License-Identifier: Apache-2.0
// The contract of moe_route_quant, and that its outputs have the bits of the separate ops.
#include "k3/ops/moe_route_quant.h"

#include "harness/ops/moe_router.h"
#include "tests/ops/contract_table.h"
#include "tests/ops/machines.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_route_quant";

void add_rows(Bundle& b, const RouterShape& shape, std::int64_t D, DType dtype) {
  Random random(3);
  b.tensors["x"] = normal(random, dtype, {shape.T, D}, 2.0);
  b.tensors["packed"] = poisoned(DType::kI32, {shape.T, shape.k});
  b.tensors["x_q"] = poisoned(DType::kF8E4M3, {shape.T, D});
  b.tensors["x_s"] = poisoned(DType::kI32, {shape.T, (D / 32 + 3) / 4});
  set_router_scalars(b, shape);
  b.scalars["group_size"] = "32";
}

Bundle valid_bundle() {
  const RouterShape shape = {.E = 40, .k = 4};
  Bundle b;
  draw_router(b, shape, 1);
  add_rows(b, shape, 160, DType::kBF16);
  return b;
}

class MoeRouteQuantContract : public testing::TestWithParam<Violation> {};

TEST_P(MoeRouteQuantContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";

INSTANTIATE_TEST_SUITE_P(
    All, MoeRouteQuantContract,
    testing::Values(
        Violation{"bias_long", "scores", "must have shape [T, E]", with_size("bias", 0, 41)},
        Violation{"topk_5", "topk_weights", "must have shape [T, topk]", with_scalar("topk", "5")},
        Violation{"topk_0", "topk", "must be 1 to 64", with_scalar("topk", "0")},
        Violation{"x_rows", "x", "must have shape [T, D]", with_size("x", 0, 2)},
        Violation{"x_part_of_a_group", "x", "must have rows of whole groups of 32",
                  with_size("x", 1, 150)},
        Violation{"group_40", "group_size", "must be a multiple of 16 from 16 to 256",
                  with_scalar("group_size", "40")},
        Violation{"group_272", "group_size", "must be a multiple of 16 from 16 to 256",
                  with_scalar("group_size", "272")},
        Violation{"x_q_i8", "x_q", "must be f8_e4m3", with_dtype("x_q", DType::kI8)},
        Violation{"x_q_columns", "x_q", "must have shape [T, D]", with_size("x_q", 1, 128)},
        Violation{"x_s_words", "x_s", "must have shape [T, ceil(G/4)]", with_size("x_s", 1, 5)},
        Violation{"x_s_f32", "x_s", "must have shape [T, G]", with_dtype("x_s", DType::kF32)},
        Violation{"packed_columns", "packed", "must have shape [T, topk]",
                  with_size("packed", 1, 3)},
        Violation{"packed_strided", "packed", kUnitStride, with_stride("packed", 1, 2)},
        Violation{"x_strided", "x", kUnitStride, with_stride("x", 1, 2)},
        Violation{"x_q_strided", "x_q", kUnitStride, with_stride("x_q", 1, 2)},
        Violation{"scale_nan", "routed_scaling_factor", "must be finite",
                  with_scalar("routed_scaling_factor", "nan")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MoeRouteQuantContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

Bundle router_of(const RouterShape& shape, const char* edit) {
  Bundle b;
  for (const RouterEdit& each : router_edits())
    if (std::string(each.name) == edit) draw_router(b, shape, 5, each);
  if (b.tensors.empty()) draw_router(b, shape, 5);
  return b;
}

class MoeRouteQuantOn : public MachineTest {};

TEST_P(MoeRouteQuantOn, HasTheBitsOfTheSeparateOps) {
  const auto& [on, variant] = GetParam();
  for (const std::int64_t T : {1, 2, 8, 64, 300})
    for (const char* edit : {"", "all_equal", "every_third_nan"})
      for (const bool strided : {false, true}) {
        const RouterShape shape = {.T = T, .scale = "2.446"};
        Bundle b = router_of(shape, edit);
        add_rows(b, shape, 3584, DType::kBF16);
        if (strided) b.tensors["x"] = restrided(b.tensors.at("x"), {4608, 1}, 512);
        const Bundle whole = run_on(on, kOp, b, variant);

        Bundle router = router_of(shape, edit);
        set_router_scalars(router, shape);
        const Bundle routed = run_on(on, "moe_route_topk", router);
        Bundle pack;
        for (const char* name : {"topk_ids", "topk_weights"})
          pack.tensors[name] = routed.tensors.at(name);
        pack.tensors["packed"] = poisoned(DType::kI32, {T, 16});
        Bundle quant;
        quant.tensors = {{"input", b.tensors.at("x")},
                         {"output_q", b.tensors.at("x_q")},
                         {"output_s", b.tensors.at("x_s")}};
        quant.scalars = {{"group_size", "32"}, {"scale_ue8m0", "1"}};
        const Bundle quantised = run_on(on, "per_token_group_quant", quant);
        const auto expect = [&](const char* name, const Tensor& expected) {
          EXPECT_TRUE(same_bits(whole.tensors.at(name), expected))
              << name << ", " << T << " tokens " << edit;
        };
        expect("topk_weights", routed.tensors.at("topk_weights"));
        expect("topk_ids", routed.tensors.at("topk_ids"));
        expect("packed", run_on(on, "moe_pack_topk", pack).tensors.at("packed"));
        expect("x_q", quantised.tensors.at("output_q"));
        expect("x_s", quantised.tensors.at("output_s"));
      }
}

INSTANTIATE_TEST_SUITE_P(All, MoeRouteQuantOn, testing::ValuesIn(machines_of(kOp)),
                         [](const auto& info) { return name_of(info.param); });

TEST(MoeRouteQuant, BitsDoNotDependOnThreads) {
  const RouterShape shape = {.T = 70};
  Bundle input = router_of(shape, "");
  add_rows(input, shape, 3584, DType::kF32);
  const Bundle one = run_cpu(kOp, input, 1);
  for (int threads : {2, 3, 16})
    EXPECT_EQ(difference(one, run_cpu(kOp, input, threads)), "") << threads;
}

}  // namespace
}  // namespace k3::harness
