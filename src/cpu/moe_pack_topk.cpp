// SPDX-License-Identifier: Apache-2.0

// Ids and weights into words: two loads and a store for each vector. docs/moe_glue.md.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/moe_pack_topk.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/moe_pack_topk.h"
#include "cpu/parallel.h"

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

constexpr std::int64_t kTaskWords = 32768;
constexpr double kWordTime = 3e-4;  ///< microseconds of one thread, roughly

}  // namespace

void moe_pack_topk(const MoePackTopkProblem& p, const Target& target) {
  if (p.num_rows == 0 || p.columns == 0) return;
  const auto pack = HWY_DYNAMIC_DISPATCH(pack_span);
  const std::int64_t span = std::min(p.columns, kTaskWords);
  const std::int64_t spans_per_row = (p.columns - 1) / span + 1;
  const std::int64_t spans_per_task = kTaskWords / span;
  const std::int64_t num_spans = p.num_rows * spans_per_row;
  const int threads = useful_threads(
      target.threads, kWordTime * static_cast<double>(p.num_rows) * static_cast<double>(p.columns));
  parallel_for((num_spans - 1) / spans_per_task + 1, threads, [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * spans_per_task, num_spans);
    for (std::int64_t i = task * spans_per_task; i < end; ++i) {
      const std::int64_t begin = i % spans_per_row * span;
      pack(p, i / spans_per_row, begin, std::min(begin + span, p.columns));
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
