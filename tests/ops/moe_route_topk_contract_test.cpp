// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/moe_router.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_route_topk";

Bundle valid_bundle() {
  const RouterShape shape = {.E = 40, .k = 4};
  Bundle b;
  draw_router(b, shape, 1);
  set_router_scalars(b, shape);
  return b;
}

class MoeRouteTopkContract : public testing::TestWithParam<Violation> {};

TEST_P(MoeRouteTopkContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";

INSTANTIATE_TEST_SUITE_P(
    All, MoeRouteTopkContract,
    testing::Values(
        Violation{"scores_f16", "scores", "must be bf16 or f32", with_dtype("scores", DType::kF16)},
        Violation{"bias_bf16", "bias", "must be f32", with_dtype("bias", DType::kBF16)},
        Violation{"weights_bf16", "topk_weights", "must be f32",
                  with_dtype("topk_weights", DType::kBF16)},
        Violation{"ids_i64", "topk_ids", "must be i32", with_dtype("topk_ids", DType::kI64)},
        Violation{"scores_wide", "scores", "must have shape [T, E]", with_size("scores", 1, 41)},
        Violation{"bias_long", "scores", "must have shape [T, E]", with_size("bias", 0, 41)},
        Violation{"no_expert", "bias", "must have at least one expert",
                  [](Call& c) {
                    with_size("bias", 0, 0)(c);
                    with_size("scores", 1, 0)(c);
                  }},
        Violation{"weights_rows", "topk_weights", "must have shape [T, topk]",
                  with_size("topk_weights", 0, 2)},
        Violation{"weights_columns", "topk_weights", "must have shape [T, topk]",
                  with_size("topk_weights", 1, 5)},
        Violation{"ids_rows", "topk_ids", "must have shape [T, topk]", with_size("topk_ids", 0, 4)},
        Violation{"ids_columns", "topk_ids", "must have shape [T, topk]",
                  with_size("topk_ids", 1, 3)},
        Violation{"topk_0", "topk", "must be 1 to 64", with_scalar("topk", "0")},
        Violation{"topk_65", "topk", "must be 1 to 64", with_scalar("topk", "65")},
        Violation{"topk_past_the_experts", "topk", "must not be more than there are experts",
                  with_scalar("topk", "41")},
        Violation{"scores_strided", "scores", kUnitStride, with_stride("scores", 1, 2)},
        Violation{"bias_strided", "bias", kUnitStride, with_stride("bias", 0, 2)},
        Violation{"weights_strided", "topk_weights", kUnitStride,
                  with_stride("topk_weights", 1, 2)},
        Violation{"ids_strided", "topk_ids", kUnitStride, with_stride("topk_ids", 1, 2)},
        Violation{"ids_rows_overlap", "topk_ids", "no two of its elements may share",
                  with_stride("topk_ids", 0, 3)},
        Violation{"ids_on_weights", "topk_weights", "must not overlap topk_ids",
                  aliasing("topk_ids", "topk_weights")},
        Violation{"scale_nan", "routed_scaling_factor", "must be finite",
                  with_scalar("routed_scaling_factor", "nan")},
        Violation{"scale_inf", "routed_scaling_factor", "must be finite",
                  with_scalar("routed_scaling_factor", "inf")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MoeRouteTopkContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
