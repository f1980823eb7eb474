// SPDX-License-Identifier: Apache-2.0

// Scattered loads of one token a page: nothing for vectors to do.

#include "cpu/mla_block_table.h"

#include <algorithm>
#include <cstdint>

#include "cpu/parallel.h"

namespace k3::cpu {
namespace {

constexpr std::int64_t kTaskPages = 4096;
constexpr double kPageTime = 5e-3;  ///< microseconds of one thread, roughly

/// Pages [begin, end) of request b.
void fill_pages(const MlaBlockTableProblem& p, std::int64_t b, std::int64_t begin,
                std::int64_t end) {
  const auto page_size = static_cast<std::uint32_t>(p.page_size);
  const std::int64_t start = p.start.defined() ? p.start[b] : 0;
  const std::int32_t* const tokens = p.req_to_token + p.req_pool[b] * p.row_stride + start;
  std::int32_t* const entries = p.block_table + b * p.block_table_stride;
  for (std::int64_t j = begin; j < end; ++j) {
    const std::int64_t page = static_cast<std::uint32_t>(tokens[j * p.page_size]) / page_size;
    entries[j] = static_cast<std::int32_t>((p.has_v2p ? p.v2p[page] : page) * p.page_mult);
  }
}

}  // namespace

void mla_block_table(const MlaBlockTableProblem& p, const Target& target) {
  const std::int64_t row_tasks = (p.M + kTaskPages - 1) / kTaskPages;
  const int threads = useful_threads(target.threads, kPageTime * static_cast<double>(p.B) * p.M);
  parallel_for(p.B * row_tasks, threads, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t b = task / row_tasks;
    const std::int64_t begin = task % row_tasks * kTaskPages;
    const std::int64_t pages = (p.seq_lens[b] + p.page_size - 1) / p.page_size;
    const std::int64_t end = std::min(begin + kTaskPages, pages);
    if (begin < end) fill_pages(p, b, begin, end);
  });
}

}  // namespace k3::cpu
