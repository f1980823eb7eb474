// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {3, 5, 512});
  b.tensors["masked_m"] = integers(DType::kI32, {2, 0, 5});
  b.tensors["output_q"] = poisoned(DType::kF8E4M3, {3, 5, 256});
  b.tensors["output_s"] = poisoned(DType::kI32, {3, 1, 5});
  b.scalars = {{"scale_ue8m0", "1"}, {"transposed", "1"}};
  return b;
}

class SituMulQuantContract : public testing::TestWithParam<Violation> {};

TEST_P(SituMulQuantContract, Refuses) {
  expect_refused(*find_driver("situ_mul_quant"), valid_bundle(), GetParam());
}

Violation live_rows(const char* name, std::int32_t value) {
  return {name, "masked_m", "must be from 0 to Tp = 5",
          [=](Call& c) { static_cast<std::int32_t*>(c.tensors.at("masked_m").data)[1] = value; }};
}

INSTANTIATE_TEST_SUITE_P(
    All, SituMulQuantContract,
    testing::Values(
        live_rows("live_below_0", -1), live_rows("live_past_Tp", 6),
        Violation{"group_64", "group_size", "must be 128", with_scalar("group_size", "64")},
        Violation{"rank_1", "input", "must have rank 2 or 3", with_rank("input", 1)},
        Violation{"no_list", "masked_m", "must be given exactly when input has an expert axis",
                  absent("masked_m")},
        Violation{"list_without_experts", "masked_m",
                  "must be given exactly when input has an expert axis", with_rank("input", 2)},
        Violation{"list_too_short", "masked_m", "must have shape [E] = [3]",
                  with_size("masked_m", 0, 2)},
        Violation{"rows_of_no_groups", "input", "must have rows of whole groups",
                  with_size("input", 2, 384)},
        Violation{"codes_too_wide", "output_q", "must have shape [E, Tp, N] = [3, 5, 256]",
                  with_size("output_q", 2, 512)},
        Violation{"codes_of_other_rows", "output_q", "must have shape [E, Tp, N] = [3, 5, 256]",
                  with_size("output_q", 1, 4)},
        Violation{"words_not_transposed", "output_s",
                  "must have shape [E, ceil(G/4), Tp] = [3, 1, 5]",
                  [](Call& c) {
                    std::swap(c.tensors.at("output_s").shape[1], c.tensors.at("output_s").shape[2]);
                  }},
        Violation{"fp32_transposed", "output_s", "must be i32 with transposed and f32 without",
                  with_dtype("output_s", DType::kF32)},
        Violation{"words_in_rows", "output_s", "must be i32 with transposed and f32 without",
                  with_scalar("transposed", "0")},
        Violation{"transposed_without_ue8m0", "transposed", "needs scale_ue8m0",
                  with_scalar("scale_ue8m0", "0")},
        Violation{"input_strided", "input", "must have unit stride along its last axis",
                  with_stride("input", 2, 2)},
        Violation{"codes_strided", "output_q", "must have unit stride along its last axis",
                  with_stride("output_q", 2, 2)},
        Violation{"rows_of_codes_overlap", "output_q", "no two of its elements may share",
                  with_stride("output_q", 1, 100)},
        Violation{"words_overlap", "output_s", "no two of its elements may share",
                  with_stride("output_s", 0, 4)},
        Violation{"outputs_overlap", "output_q", "must not overlap output_s",
                  aliasing("output_s", "output_q")},
        Violation{"beta_0", "beta", "must not be 0", with_scalar("beta", "0")},
        Violation{"beta_nan", "beta", "must be finite", with_scalar("beta", "nan")},
        Violation{"linear_beta_0", "linear_beta", "must not be 0", with_scalar("linear_beta", "0")},
        Violation{"linear_beta_inf", "linear_beta", "must be finite",
                  with_scalar("linear_beta", "inf")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, SituMulQuantContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("situ_mul_quant"),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
