// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["input"] = normal(random, DType::kBF16, {2, 3, 32});
  b.tensors["out"] = poisoned(DType::kBF16, {2, 3, 16});
  b.scalars = {{"beta", "4"}, {"linear_beta", "25"}};
  return b;
}

class SituAndMulContract : public testing::TestWithParam<Violation> {};

TEST_P(SituAndMulContract, Refuses) {
  expect_refused(*find_driver("situ_and_mul"), valid_bundle(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, SituAndMulContract,
    testing::Values(
        Violation{"input_absent", "input", "must be given", absent("input")},
        Violation{"out_absent", "out", "must be given", absent("out")},
        Violation{"input_f16", "input", "must be bf16", with_dtype("input", DType::kF16)},
        Violation{"out_f32", "out", "must be bf16", with_dtype("out", DType::kF32)},
        Violation{"rank_0", "input", "must have rank 1", with_rank("input", 0)},
        Violation{"ranks_differ", "out", "must have the rank of input", with_rank("out", 2)},
        Violation{"odd_width", "input", "must have an even last axis", with_size("input", 2, 31)},
        Violation{"out_too_wide", "out", "must be half as wide as input", with_size("out", 2, 32)},
        Violation{"rows_differ", "out", "must be half as wide as input", with_size("out", 1, 2)},
        Violation{"input_strided", "input", "must have unit stride along its last axis",
                  with_stride("input", 2, 2)},
        Violation{"out_strided", "out", "must have unit stride along its last axis",
                  with_stride("out", 2, 2)},
        Violation{"rows_do_not_fold", "input",
                  "must have leading axes that fold into rows of one stride",
                  with_stride("input", 0, 100)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  [](Call& c) {
                    c.tensors.at("out").strides[1] = 8;
                    c.tensors.at("out").strides[0] = 24;
                  }},
        Violation{"negative_stride", "input", "must have no negative stride",
                  with_stride("input", 1, -32)},
        Violation{"null_input", "input", "must have a pointer", null_data("input")},
        Violation{"not_an_element", "input", "must be aligned to its 2-byte element",
                  shifted("input", 1)},
        Violation{"in_place", "out", "must not overlap input", aliasing("out", "input")},
        Violation{"mixed_devices", "out", "must be on cpu like the other tensors", on_cuda("out")},
        Violation{"beta_0", "beta", "must not be 0", with_scalar("beta", "0")},
        Violation{"beta_nan", "beta", "must be finite", with_scalar("beta", "nan")},
        Violation{"linear_beta_0", "linear_beta", "must not be 0", with_scalar("linear_beta", "0")},
        Violation{"linear_beta_inf", "linear_beta", "must be finite",
                  with_scalar("linear_beta", "inf")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, SituAndMulContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("situ_and_mul"),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
