// SPDX-License-Identifier: Apache-2.0

// A task is a token, or a part of its columns. docs/moe_sum.md has the figures.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/moe_finalize.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <cstdint>

#include "cpu/moe_finalize.h"
#include "cpu/moe_row_spans.h"
#include "cpu/moe_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

/// `length` columns of a token from `column` on.
void sum_rows(const MoeFinalizeProblem& p, std::int64_t token, std::int64_t column,
              std::int64_t length) {
  RowSums sums;
  WeightedRows rows;
  const auto row_at = [&](std::int64_t row) {
    return p.experts_out + row * p.experts_out_stride + column;
  };
  for (int j = 0; j < p.topk; ++j) {
    const std::int64_t slot = token * p.topk + j;
    const std::int64_t row = p.idx[slot];
    if (row < 0) continue;
    const std::int64_t ahead = slot + kRowsAtOnce < p.T * p.topk ? p.idx[slot + kRowsAtOnce] : -1;
    rows.ahead[rows.count] = row_at(ahead < 0 ? row : ahead);
    const std::int64_t weight = token * p.weights_stride + j;
    rows.weight[rows.count] = p.weights_dtype == DType::kF32
                                  ? static_cast<const float*>(p.topk_weights)[weight]
                                  : to_float(static_cast<const bf16*>(p.topk_weights)[weight]);
    rows.at[rows.count++] = row_at(row);
    if (rows.count == kRowsAtOnce) add_rows<true>(rows, length, sums);
  }
  add_rows<true>(rows, length, sums);
  store_sums(sums, length, p.out + token * p.out_stride + column);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(sum_rows);

}  // namespace

void moe_finalize(const MoeFinalizeProblem& p, const Target& target) {
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_rows);
  for_each_row_span(p.T, p.H, target.threads, moe_row_spans(p.topk),
                    [&](std::int64_t token, std::int64_t column, std::int64_t count) {
                      sum(p, token, column, count);
                    });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
