// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["experts_out"] = normal(random, DType::kBF16, {9, 40});
  b.tensors["idx"] =
      filled(DType::kI32, {3, 4}, [&] { return static_cast<double>(random.next() % 10) - 1.0; });
  b.tensors["topk_weights"] = normal(random, DType::kBF16, {3, 4});
  b.tensors["out"] = poisoned(DType::kBF16, {3, 40});
  return b;
}

/// idx[1, 2] = value.
std::function<void(Call&)> with_index(std::int32_t value) {
  return [=](Call& call) { static_cast<std::int32_t*>(call.tensors.at("idx").data)[6] = value; };
}

class MoeFinalizeContract : public testing::TestWithParam<Violation> {};

TEST_P(MoeFinalizeContract, Refuses) {
  expect_refused(*find_driver("moe_finalize"), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";

INSTANTIATE_TEST_SUITE_P(
    All, MoeFinalizeContract,
    testing::Values(
        Violation{"rows_f32", "experts_out", "must be bf16",
                  with_dtype("experts_out", DType::kF32)},
        Violation{"idx_i64", "idx", "must be i32", with_dtype("idx", DType::kI64)},
        Violation{"weights_f16", "topk_weights", "must be bf16 or f32",
                  with_dtype("topk_weights", DType::kF16)},
        Violation{"out_f32", "out", "must be bf16", with_dtype("out", DType::kF32)},
        Violation{"idx_rank_3", "idx", "must have rank 1 or 2", with_rank("idx", 3)},
        Violation{"idx_of_other_topk", "idx", "must have shape [T, topk]", with_size("idx", 1, 3)},
        Violation{"flat_idx_too_short", "idx", "must have shape [T*topk]",
                  [](Call& c) {
                    with_rank("idx", 1)(c);
                    with_size("idx", 0, 11)(c);
                    with_stride("idx", 0, 1)(c);
                  }},
        Violation{"other_tokens", "out", "must have shape [T, H]", with_size("out", 0, 2)},
        Violation{"other_width", "out", "must have shape [T, H]", with_size("out", 1, 39)},
        Violation{"H_past_31_bits", "experts_out", "must fit 31 bits",
                  [](Call& c) {
                    with_size("experts_out", 1, std::int64_t{1} << 31)(c);
                    with_stride("experts_out", 1, 0)(c);
                  }},
        Violation{"topk_past_31_bits", "topk_weights", "must fit 31 bits",
                  [](Call& c) {
                    with_size("topk_weights", 1, std::int64_t{1} << 31)(c);
                    with_stride("topk_weights", 1, 0)(c);
                  }},
        Violation{"rows_strided", "experts_out", kUnitStride, with_stride("experts_out", 1, 2)},
        Violation{"idx_strided", "idx", "must be dense", with_stride("idx", 0, 5)},
        Violation{"weights_strided", "topk_weights", kUnitStride,
                  with_stride("topk_weights", 1, 2)},
        Violation{"out_strided", "out", kUnitStride, with_stride("out", 1, 2)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  with_stride("out", 0, 39)},
        Violation{"index_one_past_the_end", "idx", "a row below 9", with_index(9)},
        Violation{"index_far_past_the_end", "idx", "a row below 9", with_index(2147483647)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MoeFinalizeContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("moe_finalize"),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
