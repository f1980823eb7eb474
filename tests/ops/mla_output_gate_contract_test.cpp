// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["x"] = normal(random, DType::kBF16, {2, 3, 32});
  b.tensors["gate"] = normal(random, DType::kBF16, {2, 3, 32});
  b.tensors["out"] = poisoned(DType::kBF16, {2, 3, 32});
  return b;
}

class MlaOutputGateContract : public testing::TestWithParam<Violation> {};

TEST_P(MlaOutputGateContract, Refuses) {
  expect_refused(*find_driver("mla_output_gate"), valid_bundle(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, MlaOutputGateContract,
    testing::Values(
        Violation{"x_f16", "x", "must be bf16", with_dtype("x", DType::kF16)},
        Violation{"rank_0", "x", "must have rank 1", with_rank("x", 0)},
        Violation{"gate_of_another_rank", "gate", "must have the shape of x", with_rank("gate", 2)},
        Violation{"gate_of_another_size", "gate", "must have the shape of x",
                  with_size("gate", 2, 16)},
        Violation{"out_of_another_rank", "out", "must have the shape of x", with_rank("out", 2)},
        Violation{"out_of_another_size", "out", "must have the shape of x", with_size("out", 1, 2)},
        Violation{"x_strided", "x", "must have unit stride along its last axis",
                  with_stride("x", 2, 2)},
        Violation{"gate_strided", "gate", "must have unit stride along its last axis",
                  with_stride("gate", 2, 2)},
        Violation{"out_strided", "out", "must have unit stride along its last axis",
                  with_stride("out", 2, 2)},
        Violation{"x_does_not_fold", "x",
                  "must have leading axes that fold into rows of one stride",
                  [](Call& c) {
                    c.tensors.at("x").strides[1] = 16;
                    c.tensors.at("x").strides[0] = 64;
                  }},
        Violation{"negative_stride", "gate", "must have no negative stride",
                  with_stride("gate", 1, -32)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  [](Call& c) {
                    c.tensors.at("out").strides[1] = 8;
                    c.tensors.at("out").strides[0] = 24;
                  }},
        Violation{"out_one_element_past_x", "out", "must not overlap x",
                  [](Call& c) {
                    aliasing("out", "x")(c);
                    shifted("out", 2)(c);
                    c.tensors.at("x").shape[0] = 1;
                    c.tensors.at("gate").shape[0] = 1;
                    c.tensors.at("out").shape[0] = 1;
                  }},
        Violation{"out_on_x_of_other_strides", "out", "must not overlap x",
                  [](Call& c) {
                    aliasing("out", "x")(c);
                    c.tensors.at("x").strides[0] = 32;
                  }}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MlaOutputGateContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("mla_output_gate"),
                                                                 valid_bundle(), {{"out", "x"}})),
                         violation_name);

}  // namespace
}  // namespace k3::harness
