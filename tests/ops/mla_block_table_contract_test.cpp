// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/mla_pages.h"
#include "tests/environment.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "mla_block_table";

/// Four rows of 640 tokens, pages of 64, a table of 12 columns.
Bundle valid_bundle() {
  return mla_pages({.lengths = {100, 0, 576}, .starts = {3, 0, 64}, .rows = 4, .v2p = true});
}

std::function<void(Call&)> with_entry(const char* list, std::int64_t at, std::int64_t value) {
  return [=](Call& c) { static_cast<std::int64_t*>(c.tensors.at(list).data)[at] = value; };
}

/// The token where page 1 of request 0 begins.
std::function<void(Call&)> with_token(std::int32_t value) {
  return [=](Call& c) {
    const std::int64_t row = static_cast<const std::int64_t*>(c.tensors.at("req_pool").data)[0];
    static_cast<std::int32_t*>(c.tensors.at("req_to_token").data)[row * 640 + 3 + 64] = value;
  };
}

class MlaBlockTableContract : public testing::TestWithParam<Violation> {};

TEST_P(MlaBlockTableContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, MlaBlockTableContract,
    testing::Values(
        Violation{"tokens_i64", "req_to_token", "must be i32",
                  with_dtype("req_to_token", DType::kI64)},
        Violation{"lengths_f32", "seq_lens", "must be i32 or i64",
                  with_dtype("seq_lens", DType::kF32)},
        Violation{"table_i64", "block_table", "must be i32",
                  with_dtype("block_table", DType::kI64)},
        Violation{"pool_of_other_requests", "req_pool", "must have shape [B]",
                  with_size("req_pool", 0, 2)},
        Violation{"start_of_other_requests", "start", "must have shape [B]",
                  with_size("start", 0, 2)},
        Violation{"table_of_other_requests", "block_table", "must have shape [B, M]",
                  with_size("block_table", 0, 2)},
        Violation{"tokens_strided", "req_to_token", "must have unit stride along its last axis",
                  with_stride("req_to_token", 1, 2)},
        Violation{"table_strided", "block_table", "must have unit stride along its last axis",
                  with_stride("block_table", 1, 2)},
        Violation{"table_rows_overlap", "block_table", "no two of its elements may share",
                  with_stride("block_table", 0, 11)},
        Violation{"too_many_columns", "block_table", "must fit 31 bits",
                  with_size("block_table", 1, std::int64_t{1} << 31)},
        Violation{"page_size_0", "page_size", "must be at least 1", with_scalar("page_size", "0")},
        Violation{"page_mult_0", "page_mult", "must be at least 1", with_scalar("page_mult", "0")},
        Violation{"length_negative", "seq_lens", "must be at least 0",
                  with_entry("seq_lens", 1, -1)},
        Violation{"length_past_the_table", "seq_lens", "at most 768, 12 pages",
                  with_entry("seq_lens", 2, 833)},
        Violation{"length_past_the_tokens", "start",
                  "must leave every page's first token below 640", with_entry("seq_lens", 2, 577)},
        Violation{"length_past_the_tokens_from_0", "seq_lens",
                  "must leave every page's first token",
                  [](Call& c) {
                    c.tensors.erase("start");
                    with_entry("seq_lens", 2, 641)(c);
                  }},
        Violation{"start_negative", "start", "must leave every page's first token",
                  with_entry("start", 0, -1)},
        Violation{"start_past_the_tokens", "start", "must leave every page's first token",
                  with_entry("start", 0, 576)},
        Violation{"start_far_past", "start", "must leave every page's first token",
                  with_entry("start", 0, std::numeric_limits<std::int64_t>::max())},
        Violation{"row_negative", "req_pool", "must be a row below 4",
                  with_entry("req_pool", 0, -1)},
        Violation{"row_past_the_pool", "req_pool", "must be a row below 4",
                  with_entry("req_pool", 2, 4)},
        Violation{"token_negative", "req_to_token", "must hold no negative token", with_token(-1)},
        Violation{"token_past_v2p", "req_to_token", "must hold tokens of pages below 41",
                  with_token(41 * 64)},
        Violation{"page_negative", "v2p", "must hold no negative page",
                  [](Call& c) {
                    with_token(5 * 64)(c);
                    with_entry("v2p", 5, -1)(c);
                  }},
        Violation{"entry_past_31_bits", "page_mult", "must leave every entry below 2^31",
                  [](Call& c) {
                    c.scalars["page_mult"] = "24";
                    with_token(5 * 64)(c);
                    with_entry("v2p", 5, 0x7FFFFFFF / 24 + 1)(c);
                  }}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, MlaBlockTableContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
