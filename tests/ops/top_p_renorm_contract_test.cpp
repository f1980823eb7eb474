// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "harness/ops/probabilities.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["probs"] = random_probabilities(random, 3, 40);
  b.tensors["top_ps"] = constant(DType::kF32, {3}, 0.5);
  b.tensors["out"] = poisoned(DType::kF32, {3, 40});
  return b;
}

Bundle with_one_top_p() {
  Bundle b = valid_bundle();
  b.tensors.erase("top_ps");
  b.scalars = {{"top_p", "0.5"}};
  return b;
}

/// top_ps[1] = value.
std::function<void(Call&)> with_top_p(float value) {
  return [=](Call& call) { static_cast<float*>(call.tensors.at("top_ps").data)[1] = value; };
}

class TopPRenormContract : public testing::TestWithParam<Violation> {};

TEST_P(TopPRenormContract, Refuses) {
  expect_refused(*find_driver("top_p_renorm"), valid_bundle(), GetParam());
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";
constexpr const char* kInRange = "must be above 0 and at most 1";
constexpr const char* kOneOfTwo = "must be given if and only if top_ps is not";

INSTANTIATE_TEST_SUITE_P(
    All, TopPRenormContract,
    testing::Values(
        Violation{"probs_bf16", "probs", "must be f32", with_dtype("probs", DType::kBF16)},
        Violation{"top_ps_f16", "top_ps", "must be f32", with_dtype("top_ps", DType::kF16)},
        Violation{"out_bf16", "out", "must be f32", with_dtype("out", DType::kBF16)},
        Violation{"probs_rank_1", "probs", "must have rank 2", with_rank("probs", 1)},
        Violation{"top_ps_rank_2", "top_ps", "must have rank 1", with_rank("top_ps", 2)},
        Violation{"too_few_top_ps", "top_ps", "must have shape [B]", with_size("top_ps", 0, 2)},
        Violation{"other_rows", "out", "must have shape [B, V]", with_size("out", 0, 2)},
        Violation{"other_values", "out", "must have shape [B, V]", with_size("out", 1, 39)},
        Violation{"V_past_31_bits", "probs", "must fit 31 bits",
                  [](Call& c) {
                    with_size("probs", 1, std::int64_t{1} << 31)(c);
                    with_stride("probs", 1, 0)(c);
                  }},
        Violation{"probs_strided", "probs", kUnitStride, with_stride("probs", 1, 2)},
        Violation{"out_strided", "out", kUnitStride, with_stride("out", 1, 2)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  with_stride("out", 0, 39)},
        Violation{"out_is_probs_one_row_on", "out", "must not overlap probs",
                  [](Call& c) {
                    aliasing("out", "probs")(c);
                    shifted("out", 40 * 4)(c);
                    for (const char* name : {"probs", "top_ps", "out"}) with_size(name, 0, 2)(c);
                  }},
        Violation{"both_given", "top_p", kOneOfTwo, with_scalar("top_p", "0.5")},
        Violation{"neither_given", "top_p", kOneOfTwo, absent("top_ps")},
        Violation{"a_top_p_0", "top_ps", kInRange, with_top_p(0.0F)},
        Violation{"a_top_p_negative", "top_ps", kInRange, with_top_p(-0.5F)},
        Violation{"a_top_p_above_1", "top_ps", kInRange, with_top_p(1.0000001F)},
        Violation{"a_top_p_nan", "top_ps", kInRange,
                  with_top_p(std::numeric_limits<float>::quiet_NaN())}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, TopPRenormContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("top_p_renorm"),
                                                                 valid_bundle(),
                                                                 {{"out", "probs"}})),
                         violation_name);

class OneTopPContract : public testing::TestWithParam<Violation> {};

TEST_P(OneTopPContract, Refuses) {
  expect_refused(*find_driver("top_p_renorm"), with_one_top_p(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, OneTopPContract,
    testing::Values(Violation{"zero", "top_p", kInRange, with_scalar("top_p", "0")},
                    Violation{"negative", "top_p", kInRange, with_scalar("top_p", "-0.1")},
                    Violation{"above_1", "top_p", kInRange, with_scalar("top_p", "1.001")},
                    Violation{"nan", "top_p", kInRange, with_scalar("top_p", "nan")}),
    violation_name);

}  // namespace
}  // namespace k3::harness
