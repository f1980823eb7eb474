// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {3, 4, 40});
  b.tensors["out"] = poisoned(DType::kBF16, {3, 40});
  return b;
}

class MoeTopkSumContract : public testing::TestWithParam<Violation> {};

TEST_P(MoeTopkSumContract, Refuses) {
  expect_refused(*find_driver("moe_topk_sum"), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";

INSTANTIATE_TEST_SUITE_P(
    All, MoeTopkSumContract,
    testing::Values(
        Violation{"input_f32", "input", "must be bf16", with_dtype("input", DType::kF32)},
        Violation{"out_f16", "out", "must be bf16", with_dtype("out", DType::kF16)},
        Violation{"input_rank_2", "input", "must have rank 3", with_rank("input", 2)},
        Violation{"out_rank_3", "out", "must have rank 2", with_rank("out", 3)},
        Violation{"other_tokens", "out", "must have shape [T, H]", with_size("out", 0, 2)},
        Violation{"other_width", "out", "must have shape [T, H]", with_size("out", 1, 39)},
        Violation{"topk_past_31_bits", "input", "must fit 31 bits",
                  [](Call& c) {
                    with_size("input", 1, std::int64_t{1} << 31)(c);
                    with_stride("input", 1, 0)(c);
                  }},
        Violation{"H_past_31_bits", "input", "must fit 31 bits",
                  [](Call& c) {
                    with_size("input", 2, std::int64_t{1} << 31)(c);
                    with_stride("input", 2, 0)(c);
                  }},
        Violation{"input_strided", "input", kUnitStride, with_stride("input", 2, 2)},
        Violation{"out_strided", "out", kUnitStride, with_stride("out", 1, 2)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  with_stride("out", 0, 39)},
        Violation{"negative_stride", "input", "must have no negative stride",
                  with_stride("input", 1, -40)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MoeTopkSumContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("moe_topk_sum"),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
