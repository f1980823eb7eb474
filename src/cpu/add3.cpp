// SPDX-License-Identifier: Apache-2.0

// out = bf16(bf16(a + b) + c) on vectors of bf16, taken apart into fp32 vectors of their even and
// of their odd elements, which need no shuffle to come apart or together again.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/add3.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/add3.h"
#include "cpu/bf16-inl.h"
#include "cpu/row_spans.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

using BF16Tag = hn::ScalableTag<std::uint16_t>;
using WordTag = hn::Repartition<std::uint32_t, BF16Tag>;
using FloatVec = hn::Vec<hn::Repartition<float, BF16Tag>>;

/// A NaN of such sums has a low half of zeros, which rounding leaves alone.
HWY_INLINE hn::Vec<WordTag> rounded_sum(FloatVec a, FloatVec b, FloatVec c) {
  return rounded_high_halves(hn::Add(odd_values(rounded_high_halves(hn::Add(a, b))), c));
}

/// One vector. No alignment, but of `out` where `kStream`.
template <bool kStream>
HWY_INLINE void add_vector(const std::uint16_t* a_at, const std::uint16_t* b_at,
                           const std::uint16_t* c_at, std::uint16_t* out_at) {
  const BF16Tag du16;
  const WordTag du32;
  const auto a = hn::BitCast(du32, hn::LoadU(du16, a_at));
  const auto b = hn::BitCast(du32, hn::LoadU(du16, b_at));
  const auto c = hn::BitCast(du32, hn::LoadU(du16, c_at));
  const auto even = rounded_sum(even_values(a), even_values(b), even_values(c));
  const auto odd = rounded_sum(odd_values(a), odd_values(b), odd_values(c));
  const auto out =
      hn::BitCast(du16, hn::Or(hn::ShiftRight<16>(even), hn::And(odd, hn::Set(du32, 0xFFFF0000))));
  if constexpr (kStream)
    hn::Stream(out, du16, out_at);
  else
    hn::StoreU(out, du16, out_at);
}

/// Fewer elements than a vector has.
void add_rest(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c,
              std::uint16_t* out, std::int64_t count) {
  if (count == 0) return;
  HWY_ALIGN std::uint16_t lanes[3][HWY_MAX_BYTES / sizeof(std::uint16_t)] = {};
  std::copy_n(a, count, lanes[0]);
  std::copy_n(b, count, lanes[1]);
  std::copy_n(c, count, lanes[2]);
  add_vector<false>(lanes[0], lanes[1], lanes[2], lanes[0]);
  std::copy_n(lanes[0], count, out);
}

}  // namespace

/// `count` elements of one row. `stream`: past the caches.
void add3_span(const bf16* a_at, const bf16* b_at, const bf16* c_at, bf16* out_at,
               std::int64_t count, bool stream) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(BF16Tag()));
  const auto* a = reinterpret_cast<const std::uint16_t*>(a_at);
  const auto* b = reinterpret_cast<const std::uint16_t*>(b_at);
  const auto* c = reinterpret_cast<const std::uint16_t*>(c_at);
  auto* out = reinterpret_cast<std::uint16_t*>(out_at);
  std::int64_t i = 0;
  if (stream) {
    i = unaligned_head(out, count, lanes);
    add_rest(a, b, c, out, i);
    for (; i + lanes <= count; i += lanes) add_vector<true>(a + i, b + i, c + i, out + i);
    hwy::FlushStream();
  }
  for (; i + lanes <= count; i += lanes) add_vector<false>(a + i, b + i, c + i, out + i);
  add_rest(a + i, b + i, c + i, out + i, count - i);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(add3_span);

constexpr RowSpans kShares = {.task_outputs = 16384, .output_time = 3e-4};  // 5 us a task

}  // namespace

void add3(const Add3Problem& p, const Target& target) {
  if (p.D == 0) return;
  const auto add_part = HWY_DYNAMIC_DISPATCH(add3_span);
  const bool stream = stream_outputs(p.num_rows, p.D);
  for_each_row_span(p.num_rows, p.D, target.threads, kShares,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t count) {
                      add_part(p.a + row * p.a_stride + begin, p.b + row * p.b_stride + begin,
                               p.c + row * p.c_stride + begin, p.out + row * p.out_stride + begin,
                               count, stream);
                    });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
