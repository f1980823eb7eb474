// SPDX-License-Identifier: Apache-2.0
#include "contract/mla_block_table.h"

#include <fmt/format.h>

#include <limits>
#include <string>

namespace k3 {
namespace {

/// One request's lists: what `pages` > 0 pages need.
void check_request(const Contract& contract, const MlaBlockTableProblem& p, std::int64_t b,
                   std::int64_t pages) {
  const std::int64_t row = p.req_pool[b];
  if (row < 0 || row >= p.num_rows)
    contract.fail("req_pool", fmt::format("must be a row below {}", p.num_rows),
                  fmt::format("req_pool[{}] = {}", b, row));
  const std::int64_t start = p.start.defined() ? p.start[b] : 0;
  const std::int64_t span = (pages - 1) * p.page_size;
  if (start < 0 || span >= p.row_length || start >= p.row_length - span)
    contract.fail(
        p.start.defined() ? "start" : "seq_lens",
        fmt::format("must leave every page's first token below {}", p.row_length),
        fmt::format("start {} of request {} with {} pages of {}", start, b, pages, p.page_size));
}

/// One entry's token and page.
void check_entry(const Contract& contract, const MlaBlockTableProblem& p, std::int64_t b,
                 std::int64_t j) {
  const std::int64_t row = p.req_pool[b];
  const std::int64_t column = (p.start.defined() ? p.start[b] : 0) + j * p.page_size;
  const std::int64_t token = p.req_to_token[row * p.row_stride + column];
  if (token < 0)
    contract.fail("req_to_token", "must hold no negative token where a page begins",
                  fmt::format("req_to_token[{}, {}] = {}", row, column, token));
  std::int64_t page = token / p.page_size;
  if (p.has_v2p) {
    if (page >= p.v2p.size)
      contract.fail("req_to_token", fmt::format("must hold tokens of pages below {}", p.v2p.size),
                    fmt::format("req_to_token[{}, {}] = {}", row, column, token));
    const std::int64_t physical = p.v2p[page];
    if (physical < 0)
      contract.fail("v2p", "must hold no negative page",
                    fmt::format("v2p[{}] = {}", page, physical));
    page = physical;
  }
  if (page > std::numeric_limits<std::int32_t>::max() / p.page_mult)
    contract.fail("page_mult", "must leave every entry below 2^31",
                  fmt::format("page {} times {}", page, p.page_mult));
}

}  // namespace

std::span<const ArgRule<MlaBlockTableArgs>> mla_block_table_args() {
  using Args = MlaBlockTableArgs;
  constexpr DTypeSet kI32 = {DType::kI32};
  constexpr DTypeSet kEither = {DType::kI32, DType::kI64};
  constexpr auto kRead = Access::kRead;
  static const ArgRule<Args> rules[] = {
      {"req_to_token", kRead, false, kI32, {2}, &Args::req_to_token},
      {"req_pool", kRead, false, kEither, {1}, &Args::req_pool},
      {"seq_lens", kRead, false, kEither, {1}, &Args::seq_lens},
      {"start", kRead, true, kEither, {1}, &Args::start},
      {"v2p", kRead, true, kEither, {1}, &Args::v2p},
      {"block_table", Access::kWrite, false, kI32, {2}, &Args::block_table},
  };
  return rules;
}

void check_values(const Contract& contract, const MlaBlockTableProblem& p, ValueChecks /*checks*/) {
  const std::int64_t longest = std::int64_t{p.M} * p.page_size;
  for (std::int64_t b = 0; b < p.B; ++b) {
    const std::int64_t length = p.seq_lens[b];
    if (length < 0 || length > longest)
      contract.fail("seq_lens",
                    fmt::format("must be at least 0 and at most {}, {} pages", longest, p.M),
                    fmt::format("seq_lens[{}] = {}", b, length));
    const std::int64_t pages = (length + p.page_size - 1) / p.page_size;
    if (pages == 0) continue;
    check_request(contract, p, b, pages);
    if (p.device.kind != DeviceKind::kCpu) continue;
    for (std::int64_t j = 0; j < pages; ++j) check_entry(contract, p, b, j);
  }
}

MlaBlockTableProblem check(const MlaBlockTableArgs& a, Purpose purpose) {
  const Contract contract("mla_block_table", purpose);
  const auto rules = mla_block_table_args();
  contract.tensors(rules, a);
  MlaBlockTableProblem p;
  p.B = contract.small("seq_lens", "B", a.seq_lens.shape[0]);
  p.M = contract.small("block_table", "M", a.block_table.shape[1]);
  contract.shape("req_pool", a.req_pool, {{"B", p.B}});
  contract.shape("start", a.start, {{"B", p.B}});
  contract.shape("block_table", a.block_table, {{"B", p.B}, {"M", p.M}});
  contract.unit_last_stride("req_to_token", a.req_to_token);
  contract.unit_last_stride("block_table", a.block_table);
  contract.overlaps(rules, a);
  contract.require(a.page_size >= 1, "page_size", "must be at least 1",
                   [&] { return std::to_string(a.page_size); });
  contract.require(a.page_mult >= 1, "page_mult", "must be at least 1",
                   [&] { return std::to_string(a.page_mult); });

  p.req_to_token = static_cast<const std::int32_t*>(a.req_to_token.data);
  p.num_rows = a.req_to_token.shape[0];
  p.row_length = a.req_to_token.shape[1];
  p.row_stride = a.req_to_token.strides[0];
  p.req_pool = IntegerList(a.req_pool);
  p.seq_lens = IntegerList(a.seq_lens);
  p.start = IntegerList(a.start);
  p.has_v2p = a.v2p.defined();
  p.v2p = IntegerList(a.v2p);
  p.block_table = static_cast<std::int32_t*>(a.block_table.data);
  p.block_table_stride = a.block_table.strides[0];
  p.page_size = a.page_size;
  p.page_mult = a.page_mult;
  p.device = a.req_to_token.device;
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
