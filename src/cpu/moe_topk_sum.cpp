// SPDX-License-Identifier: Apache-2.0

// A task is a token, or a part of its columns. docs/moe_sum.md has the figures.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/moe_topk_sum.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <cstdint>

#include "cpu/moe_row_spans.h"
#include "cpu/moe_rows-inl.h"
#include "cpu/moe_topk_sum.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

/// `length` columns of a token from `column` on.
void sum_slots(const MoeTopkSumProblem& p, std::int64_t token, std::int64_t column,
               std::int64_t length) {
  RowSums sums;
  const bf16* const from = p.input + token * p.token_stride + column;
  const bf16* const next = token + 1 < p.T ? from + p.token_stride : from;
  WeightedRows rows;
  for (int j = 0; j < p.topk; ++j) {
    const int ahead = j + kRowsAtOnce;
    rows.ahead[rows.count] = ahead < p.topk
                                 ? from + ahead * p.slot_stride
                                 : next + std::min(ahead - p.topk, p.topk - 1) * p.slot_stride;
    rows.at[rows.count++] = from + j * p.slot_stride;
    if (rows.count == kRowsAtOnce) add_rows<false>(rows, length, sums);
  }
  add_rows<false>(rows, length, sums);
  store_sums(sums, length, p.out + token * p.out_stride + column);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(sum_slots);

}  // namespace

void moe_topk_sum(const MoeTopkSumProblem& p, const Target& target) {
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_slots);
  for_each_row_span(p.T, p.H, target.threads, moe_row_spans(p.topk),
                    [&](std::int64_t token, std::int64_t column, std::int64_t count) {
                      sum(p, token, column, count);
                    });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
