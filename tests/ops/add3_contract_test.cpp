// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  for (const char* name : {"a", "b", "c"})
    b.tensors[name] = normal(random, DType::kBF16, {2, 3, 32});
  b.tensors["out"] = poisoned(DType::kBF16, {2, 3, 32});
  return b;
}

class Add3Contract : public testing::TestWithParam<Violation> {};

TEST_P(Add3Contract, Refuses) { expect_refused(*find_driver("add3"), valid_bundle(), GetParam()); }

constexpr const char* kShape = "must have the shape of a";
constexpr const char* kUnitStride = "must have unit stride along its last axis";
constexpr const char* kFold = "must have leading axes that fold into rows of one stride";

INSTANTIATE_TEST_SUITE_P(
    All, Add3Contract,
    testing::Values(Violation{"a_f16", "a", "must be bf16", with_dtype("a", DType::kF16)},
                    Violation{"c_f32", "c", "must be bf16", with_dtype("c", DType::kF32)},
                    Violation{"rank_0", "a", "must have rank 1", with_rank("a", 0)},
                    Violation{"b_of_another_rank", "b", kShape, with_rank("b", 2)},
                    Violation{"b_of_another_size", "b", kShape, with_size("b", 2, 31)},
                    Violation{"c_of_another_size", "c", kShape, with_size("c", 0, 1)},
                    Violation{"out_of_another_size", "out", kShape, with_size("out", 1, 2)},
                    Violation{"a_strided", "a", kUnitStride, with_stride("a", 2, 2)},
                    Violation{"b_strided", "b", kUnitStride, with_stride("b", 2, 2)},
                    Violation{"c_strided", "c", kUnitStride, with_stride("c", 2, 2)},
                    Violation{"out_strided", "out", kUnitStride, with_stride("out", 2, 2)},
                    Violation{"rows_do_not_fold", "b", kFold,
                              [](Call& c) {
                                with_stride("b", 0, 200)(c);
                                with_stride("b", 1, 40)(c);
                              }},
                    Violation{"out_rows_overlap", "out", "no two of its elements may share",
                              [](Call& c) {
                                c.tensors.at("out").strides[1] = 8;
                                c.tensors.at("out").strides[0] = 24;
                              }},
                    Violation{"out_is_b", "out", "must not overlap b", aliasing("out", "b")},
                    Violation{"out_is_c", "out", "must not overlap c", aliasing("out", "c")},
                    Violation{"out_is_a_one_row_on", "out", "must not overlap a",
                              [](Call& c) {
                                aliasing("out", "a")(c);
                                shifted("out", 32 * 2)(c);
                                for (const char* name : {"a", "b", "c", "out"})
                                  with_size(name, 0, 1)(c);
                                for (const char* name : {"a", "b", "c", "out"})
                                  with_size(name, 1, 2)(c);
                              }},
                    Violation{"out_and_b_are_a", "out", "must not overlap b",
                              [](Call& c) {
                                aliasing("out", "a")(c);
                                aliasing("b", "a")(c);
                              }}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, Add3Contract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("add3"),
                                                                 valid_bundle(), {{"out", "a"}})),
                         violation_name);

}  // namespace
}  // namespace k3::harness
