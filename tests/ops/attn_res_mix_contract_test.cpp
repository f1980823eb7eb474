// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "attn_res_mix";

/// Two bank rows, and the prefix written to the third of four.
Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["bank"] = normal(random, DType::kBF16, {3, 4, 16});
  b.tensors["prefix"] = normal(random, DType::kBF16, {3, 16});
  for (const char* name : {"score_norm_weight", "score_proj", "out_norm_weight"})
    b.tensors[name] = normal(random, DType::kBF16, {16});
  b.tensors["out"] = poisoned(DType::kBF16, {3, 16});
  b.scalars = {{"num_bank_rows", "2"}, {"eps", "1e-5"}, {"write_prefix", "1"}};
  return b;
}

Bundle folded_bundle() {
  Bundle b = valid_bundle();
  b.tensors["score_weight"] = b.tensors.at("score_proj");
  b.tensors.erase("score_norm_weight");
  b.tensors.erase("score_proj");
  return b;
}

class AttnResMixContract : public testing::TestWithParam<Violation> {};

TEST_P(AttnResMixContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

/// The last axis of every tensor.
std::function<void(Call&)> with_columns(std::int64_t columns) {
  return [=](Call& call) {
    for (auto& [name, view] : call.tensors) view.shape[view.rank - 1] = columns;
  };
}

std::function<void(Call&)> given_twice() {
  return [](Call& call) { call.tensors["score_weight"] = call.tensors.at("score_proj"); };
}

constexpr const char* kUnitStride = "must have unit stride along its last axis";
constexpr const char* kColumns = "must have H columns, a multiple of 8 and at least 8";
constexpr const char* kShared = "no two of its elements may share";

INSTANTIATE_TEST_SUITE_P(
    All, AttnResMixContract,
    testing::Values(
        Violation{"no_scores", "score_norm_weight", "must be given",
                  [](Call& c) {
                    absent("score_norm_weight")(c);
                    absent("score_proj")(c);
                  }},
        Violation{"no_score_norm_weight", "score_norm_weight", "must be given",
                  absent("score_norm_weight")},
        Violation{"no_score_proj", "score_proj", "must be given", absent("score_proj")},
        Violation{"scores_twice", "score_norm_weight", "must be absent where score_weight is given",
                  given_twice()},
        Violation{"scores_and_a_half", "score_proj", "must be absent where score_weight is given",
                  [](Call& c) {
                    given_twice()(c);
                    absent("score_norm_weight")(c);
                  }},
        Violation{"no_columns", "prefix", kColumns, with_columns(0)},
        Violation{"four_columns", "prefix", kColumns, with_columns(4)},
        Violation{"twelve_columns", "prefix", kColumns, with_columns(12)},
        Violation{"bank_narrow", "bank", "must have shape [T, NB, H]", with_size("bank", 2, 8)},
        Violation{"bank_other_tokens", "bank", "must have shape [T, NB, H]",
                  with_size("bank", 0, 2)},
        Violation{"bank_full", "bank", "must have NB >= 3 rows", with_size("bank", 1, 2)},
        Violation{"bank_short", "bank", "must have NB >= 4 rows, num_bank_rows",
                  [](Call& c) {
                    with_scalar("num_bank_rows", "4")(c);
                    with_scalar("write_prefix", "0")(c);
                    with_size("bank", 1, 3)(c);
                  }},
        Violation{"score_norm_weight_long", "score_norm_weight", "must have shape [H]",
                  with_size("score_norm_weight", 0, 17)},
        Violation{"score_proj_short", "score_proj", "must have shape [H]",
                  with_size("score_proj", 0, 15)},
        Violation{"out_norm_weight_short", "out_norm_weight", "must have shape [H]",
                  with_size("out_norm_weight", 0, 8)},
        Violation{"out_other_tokens", "out", "must have shape [T, H]", with_size("out", 0, 2)},
        Violation{"out_narrow", "out", "must have shape [T, H]", with_size("out", 1, 8)},
        Violation{"bank_strided", "bank", kUnitStride, with_stride("bank", 2, 2)},
        Violation{"prefix_strided", "prefix", kUnitStride, with_stride("prefix", 1, 2)},
        Violation{"score_norm_weight_strided", "score_norm_weight", kUnitStride,
                  with_stride("score_norm_weight", 0, 2)},
        Violation{"score_proj_strided", "score_proj", kUnitStride, with_stride("score_proj", 0, 2)},
        Violation{"out_norm_weight_strided", "out_norm_weight", kUnitStride,
                  with_stride("out_norm_weight", 0, 2)},
        Violation{"out_strided", "out", kUnitStride, with_stride("out", 1, 2)},
        Violation{"out_rows_overlap", "out", kShared, with_stride("out", 0, 8)},
        Violation{"bank_rows_overlap", "bank", kShared, with_stride("bank", 1, 8)},
        Violation{"bank_tokens_overlap", "bank", kShared, with_stride("bank", 0, 48)},
        Violation{"out_is_a_bank_row", "bank", "must not overlap out", aliasing("out", "bank")},
        Violation{"out_is_a_row_of_a_bank_only_read", "out", "must not overlap bank",
                  [](Call& c) {
                    with_scalar("write_prefix", "0")(c);
                    aliasing("out", "bank")(c);
                  }},
        Violation{"rows_negative", "num_bank_rows", "must be in 0 .. 1023",
                  with_scalar("num_bank_rows", "-1")},
        Violation{"rows_past_the_limit", "num_bank_rows", "must be in 0 .. 1023",
                  with_scalar("num_bank_rows", "1024")},
        Violation{"eps_negative", "eps", "must be finite and at least 0",
                  with_scalar("eps", "-1e-5")},
        Violation{"eps_nan", "eps", "must be finite and at least 0", with_scalar("eps", "nan")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, AttnResMixContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

TEST(AttnResMixContract, ChecksTheFoldedScores) {
  const Driver& driver = *find_driver(kOp);
  expect_refused(driver, folded_bundle(),
                 {"short", "score_weight", "must have shape [H]", with_size("score_weight", 0, 8)});
  expect_refused(driver, folded_bundle(),
                 {"strided", "score_weight", kUnitStride, with_stride("score_weight", 0, 2)});
  expect_refused(
      driver, folded_bundle(),
      {"out_on_it", "out", "must not overlap score_weight", sharing_memory("out", "score_weight")});
}

TEST(AttnResMixContract, ChecksTheWorkspace) {
  expect_workspace_checked(*find_driver(kOp), valid_bundle());
}

}  // namespace
}  // namespace k3::harness
