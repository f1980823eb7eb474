// SPDX-License-Identifier: Apache-2.0

// Ids and weights into words: two loads and a store for each vector. docs/moe_glue.md.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/moe_pack_topk.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/moe_pack_topk.h"
#include "cpu/row_spans.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

using Words = hn::ScalableTag<std::uint32_t>;

HWY_INLINE hn::Vec<Words> low_words(Words du, const std::int32_t* ids) {
  return hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(ids));
}
HWY_INLINE hn::Vec<Words> low_words(Words du, const std::int64_t* ids) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(ids);
  return hn::ConcatEven(du, hn::LoadU(du, words + hn::Lanes(du)), hn::LoadU(du, words));
}

template <class Id>
void pack(const Id* ids, const float* weights, std::int32_t* packed, std::int64_t count) {
  const Words du;
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(du));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto weight = hn::LoadU(df, weights + i);
    const auto bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(weight)), hn::Set(du, 0x7FC0),
                                     bf16_bits(df, weight));
    const auto word = hn::Or(hn::ShiftLeft<16>(low_words(du, ids + i)), bits);
    hn::StoreU(word, du, reinterpret_cast<std::uint32_t*>(packed + i));
  }
  for (; i < count; ++i) packed[i] = pack_topk(ids[i], weights[i]);
}

}  // namespace

/// Columns [begin, end) of one row.
void pack_span(const MoePackTopkProblem& p, std::int64_t row, std::int64_t begin,
               std::int64_t end) {
  const float* const weights = p.weights + row * p.weights_stride + begin;
  std::int32_t* const packed = p.packed + row * p.packed_stride + begin;
  const std::int64_t at = row * p.ids_stride + begin;
  if (p.wide_ids)
    pack(static_cast<const std::int64_t*>(p.ids) + at, weights, packed, end - begin);
  else
    pack(static_cast<const std::int32_t*>(p.ids) + at, weights, packed, end - begin);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(pack_span);

constexpr RowSpans kShares = {.task_outputs = 32768, .output_time = 3e-4};  // 10 us a task

}  // namespace

void moe_pack_topk(const MoePackTopkProblem& p, const Target& target) {
  const auto pack = HWY_DYNAMIC_DISPATCH(pack_span);
  for_each_row_span(p.num_rows, p.columns, target.threads, kShares,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t count) {
                      pack(p, row, begin, begin + count);
                    });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
