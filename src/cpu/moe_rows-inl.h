// SPDX-License-Identifier: Apache-2.0

// Sums of rows of bf16, one fp32 chain an element: what joins the experts' rows of a token.

#if defined(K3_CPU_MOE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_MOE_ROWS_INL_H_
#undef K3_CPU_MOE_ROWS_INL_H_
#else
#define K3_CPU_MOE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "cpu/bf16-inl.h"
#include "cpu/moe_row_spans.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

/// Rows that one pass over the sums adds.
inline constexpr int kRowsAtOnce = 4;
/// Sums that a task keeps in the L1.
inline constexpr std::int64_t kMaxRowSums = kMoeTaskColumns;

/// Zeros at first. Whole vectors may be read and written at its end.
struct RowSums {
  RowSums() { std::fill(std::begin(at), std::end(at), 0.0F); }
  HWY_ALIGN float at[kMaxRowSums + HWY_MAX_BYTES / sizeof(float)];
};

/// Parts of at most kRowsAtOnce rows, each with its weight.
struct WeightedRows {
  const bf16* at[kRowsAtOnce];
  const bf16* ahead[kRowsAtOnce];  ///< parts to bring into the L2 meanwhile: rows are too short for
                                   ///< the hardware to look far ahead by itself
  float weight[kRowsAtOnce];
  int count = 0;
};

/// sums[i] += row[i], or += weight * row[i], one row after the other.
template <bool kWeighted, int kCount>
HWY_INLINE void add_row_group(const WeightedRows& rows, std::int64_t length, RowSums& row_sums) {
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  constexpr std::int64_t kLine = 64 / sizeof(bf16);
  float* const sums = row_sums.at;
  std::int64_t i = 0;
  for (; i + lanes <= length; i += lanes) {
    if (i % kLine == 0)
      for (int r = 0; r < kCount; ++r) __builtin_prefetch(rows.ahead[r] + i, 0, 2);
    auto sum = hn::LoadU(df, sums + i);
    for (int r = 0; r < kCount; ++r) {
      const auto x = load_bf16(df, rows.at[r] + i);
      if constexpr (kWeighted)
        sum = hn::MulAdd(hn::Set(df, rows.weight[r]), x, sum);
      else
        sum = hn::Add(sum, x);
    }
    hn::StoreU(sum, df, sums + i);
  }
  if (i == length) return;
  const auto rest = static_cast<std::size_t>(length - i);
  auto sum = hn::LoadU(df, sums + i);
  for (int r = 0; r < kCount; ++r) {
    const auto x = load_bf16_n(df, rows.at[r] + i, rest);
    sum = kWeighted ? hn::MulAdd(hn::Set(df, rows.weight[r]), x, sum) : hn::Add(sum, x);
  }
  hn::StoreU(sum, df, sums + i);
}

/// Adds the rows and forgets them.
template <bool kWeighted>
HWY_INLINE void add_rows(WeightedRows& rows, std::int64_t length, RowSums& sums) {
  if (rows.count == 4) add_row_group<kWeighted, 4>(rows, length, sums);
  if (rows.count == 3) add_row_group<kWeighted, 3>(rows, length, sums);
  if (rows.count == 2) add_row_group<kWeighted, 2>(rows, length, sums);
  if (rows.count == 1) add_row_group<kWeighted, 1>(rows, length, sums);
  rows.count = 0;
}

HWY_INLINE void store_sums(const RowSums& row_sums, std::int64_t length, bf16* out) {
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const float* const sums = row_sums.at;
  std::int64_t i = 0;
  for (; i + lanes <= length; i += lanes) store_bf16(df, hn::LoadU(df, sums + i), out + i);
  for (; i < length; ++i) out[i] = to_bf16(sums[i]);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
