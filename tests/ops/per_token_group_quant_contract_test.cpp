// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {3, 160});
  b.tensors["output_q"] = poisoned(DType::kF8E4M3, {3, 160});
  b.tensors["output_s"] = poisoned(DType::kI32, {3, 2});
  b.scalars = {{"group_size", "32"}, {"scale_ue8m0", "1"}};
  return b;
}

class PerTokenGroupQuantContract : public testing::TestWithParam<Violation> {};

TEST_P(PerTokenGroupQuantContract, Refuses) {
  expect_refused(*find_driver("per_token_group_quant"), valid_bundle(), GetParam());
}

Violation group_of(const char* value) {
  return {std::string("group_") + (*value == '-' ? "below_0" : value), "group_size",
          "must be a multiple of 16 from 16 to 256", with_scalar("group_size", value)};
}

INSTANTIATE_TEST_SUITE_P(
    All, PerTokenGroupQuantContract,
    testing::Values(group_of("0"), group_of("-16"), group_of("8"), group_of("24"), group_of("272"),
                    Violation{"rank_3", "input", "must have rank 2", with_rank("input", 3)},
                    Violation{"rows_of_no_groups", "input", "must have rows of whole groups of 64",
                              with_scalar("group_size", "64")},
                    Violation{"codes_too_wide", "output_q", "must have shape [T, D] = [3, 160]",
                              with_size("output_q", 1, 161)},
                    Violation{"codes_of_other_rows", "output_q",
                              "must have shape [T, D] = [3, 160]", with_size("output_q", 0, 2)},
                    Violation{"too_few_words", "output_s",
                              "must have shape [T, ceil(G/4)] = [3, 2]",
                              with_size("output_s", 1, 1)},
                    Violation{"too_few_scales", "output_s", "must have shape [T, G] = [3, 5]",
                              with_dtype("output_s", DType::kF32)},
                    Violation{"packed_fp32", "output_s", "must be f32 without scale_ue8m0",
                              with_scalar("scale_ue8m0", "0")},
                    Violation{"i8_with_ue8m0", "output_q", "must be f8_e4m3 with scale_ue8m0",
                              with_dtype("output_q", DType::kI8)},
                    Violation{"input_strided", "input", "must have unit stride along its last axis",
                              with_stride("input", 1, 2)},
                    Violation{"codes_strided", "output_q",
                              "must have unit stride along its last axis",
                              with_stride("output_q", 1, 2)},
                    Violation{"rows_of_codes_overlap", "output_q",
                              "no two of its elements may share", with_stride("output_q", 0, 100)},
                    Violation{"words_overlap", "output_s", "no two of its elements may share",
                              with_stride("output_s", 0, 1)},
                    Violation{"outputs_overlap", "output_q", "must not overlap output_s",
                              aliasing("output_s", "output_q")},
                    Violation{"negative_stride", "input", "must have no negative stride",
                              with_stride("input", 0, -160)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    EveryTensor, PerTokenGroupQuantContract,
    testing::ValuesIn(rules_of_every_tensor(*find_driver("per_token_group_quant"), valid_bundle())),
    violation_name);

}  // namespace
}  // namespace k3::harness
