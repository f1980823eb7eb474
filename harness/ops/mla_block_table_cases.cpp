// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "harness/ops/case_list.h"
#include "harness/ops/mla_pages.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

/// Integers: every bit counts.
std::map<std::string, Tolerance> exact(const MlaPages& /*options*/) { return {}; }

Bundle make(const MlaPages& options, std::uint64_t seed) {
  MlaPages o = options;
  o.seed = seed;
  return mla_pages(o);
}

void stride_lists(Bundle& b) {
  for (const char* name : {"req_pool", "seq_lens", "start", "v2p"})
    b.tensors[name] = restrided(b.tensors.at(name), {2}, 1);
}

void widen_rows(Bundle& b) {
  for (const char* name : {"req_to_token", "block_table"}) pad_rows(b, name, 5, 3);
}

/// Neither the row nor the start of a request without pages is one.
void spoil_empty_requests(Bundle& b) {
  for (std::int64_t i : {0, 3}) {
    b.tensors.at("req_pool").set(i, 1000);
    b.tensors.at("start").set(i, -5);
  }
}

/// The largest entry there can be.
void reach_the_largest_entry(Bundle& b) {
  b.tensors.at("v2p").fill(0x7FFFFFFF / 24);
  b.scalars["page_mult"] = "24";
}

/// Tokens that no page begins with may be anything.
void spoil_other_tokens(Bundle& b) {
  Tensor& tokens = b.tensors.at("req_to_token");
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    if (i % tokens.shape()[1] % 64 != 0) tokens.set(i, -1);
}

}  // namespace

std::vector<Case> mla_block_table_cases() {
  CaseList<MlaPages> list(make, exact);
  const std::vector<std::int64_t> ragged = {1, 63, 64, 65, 0, 128, 1000};
  const std::vector<std::int64_t> starts = {0, 64, 3, 640, 0, 1, 127};
  list.add("ragged", {.lengths = ragged});
  list.add("lists_i32", {.lengths = ragged, .starts = starts, .v2p = true, .lists = DType::kI32});
  list.add("start", {.lengths = ragged, .starts = starts});
  list.add("v2p", {.lengths = ragged, .rows = 20, .v2p = true});
  list.add("all", {.lengths = ragged, .starts = starts, .rows = 9, .page_mult = 24, .v2p = true});
  list.add("no_requests", {.lengths = {}});
  list.add("no_pages", {.lengths = {0, 0, 0}});
  list.add("no_columns", {.lengths = {0, 0}},
           [](Bundle& b) { b.tensors["block_table"] = Tensor::dense(DType::kI32, {2, 0}); });
  list.add("one_token", {.lengths = {1}});
  for (std::int64_t page_size : {1, 7, 16, 128, 4096})
    list.add("page_size_" + std::to_string(page_size),
             {.lengths = ragged, .starts = starts, .page_size = page_size, .v2p = true});
  list.add("page_mult", {.lengths = ragged, .page_mult = 24});
  list.add("pages_past_one_cta", {.lengths = {64 * 129, 64 * 128, 64 * 127 + 1}});
  list.add("lists_strided", {.lengths = ragged, .starts = starts, .v2p = true}, stride_lists);
  list.add("rows_padded", {.lengths = ragged, .starts = starts}, widen_rows);
  list.add("empty_requests", {.lengths = {0, 70, 64, 0, 1}, .starts = {0, 64, 0, 0, 2}},
           spoil_empty_requests);
  list.add("largest_entry", {.lengths = ragged, .v2p = true}, reach_the_largest_entry);
  list.add("other_tokens", {.lengths = ragged}, spoil_other_tokens);
  list.add("long_context", {.lengths = {1 << 20, 5, 1 << 19}, .v2p = true}, [](Bundle&) {}, false);
  return list.take();
}

}  // namespace k3::harness
