// SPDX-License-Identifier: Apache-2.0

// Rows of two parts, copied (bf16) or rounded to e4m3. Small calls store into the caches, for the
// attention that reads them next; large ones past them, because a store into a cache reads its line
// from memory first.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/mla_cache_write_concat_q.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/mla_cache_write_concat_q.h"
#include "cpu/parallel.h"

#ifndef K3_CPU_MLA_CACHE_WRITE_CONCAT_Q_ROWS_
#define K3_CPU_MLA_CACHE_WRITE_CONCAT_Q_ROWS_
namespace k3::cpu {

/// Rows of the same two widths. Strides in elements.
struct ConcatRows {
  std::int64_t count = 1;
  const bf16* nope = nullptr;
  std::int64_t nope_stride = 0;
  const bf16* rope = nullptr;
  std::int64_t rope_stride = 0;
  void* to = nullptr;
  std::int64_t to_stride = 0;
};

}  // namespace k3::cpu
#endif  // K3_CPU_MLA_CACHE_WRITE_CONCAT_Q_ROWS_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using BF16Tag = hn::ScalableTag<std::uint16_t>;
using ByteTag = hn::Rebind<std::uint8_t, BF16Tag>;  // as many codes
using FullByteTag = hn::ScalableTag<std::uint8_t>;
using BF16Vec = hn::Vec<BF16Tag>;

/// The codes of `to_e4m3` of bf16 values, one in the low byte of each lane.
///
/// Rounding adds the fp32 number 2^(e+20), where e is the value's exponent, -6 at least: the unit
/// in the last place of the sum is that of e4m3, so the sum holds the value in units of it, 0 to
/// 16, in its low mantissa bits. 8 for each exponent above -6 make the code. All but that one sum
/// fits lanes of 16 bits: the low halves of the summands are zero, and those of the sums are the
/// units.
HWY_INLINE BF16Vec e4m3_codes(BF16Vec x) {
  const BF16Tag d16;
  const hn::RebindToSigned<BF16Tag> di16;
  const hn::Repartition<std::uint32_t, BF16Tag> d32;
  const hn::Repartition<float, BF16Tag> df;
  constexpr std::uint16_t kSmallestExponent = 0x3C80;  // of -6
  const auto magnitude = hn::BitCast(di16, hn::And(x, hn::Set(d16, 0x7FFF)));
  const auto is_nan = hn::RebindMask(d16, hn::Gt(magnitude, hn::Set(di16, 0x7F80)));
  const auto held = hn::BitCast(d16, hn::Min(magnitude, hn::Set(di16, 0x43E0)));  // 448
  const auto exponent =
      hn::And(hn::SaturatedSub(held, hn::Set(d16, kSmallestExponent)), hn::Set(d16, 0x7F80));
  const auto rounder = hn::Add(exponent, hn::Set(d16, kSmallestExponent + (20 << 7)));

  const auto pairs = hn::BitCast(d32, held);
  const auto rounder_pairs = hn::BitCast(d32, rounder);
  const auto high = hn::Set(d32, 0xFFFF0000);
  const auto even = hn::Add(hn::BitCast(df, hn::ShiftLeft<16>(pairs)),
                            hn::BitCast(df, hn::ShiftLeft<16>(rounder_pairs)));
  const auto odd =
      hn::Add(hn::BitCast(df, hn::And(pairs, high)), hn::BitCast(df, hn::And(rounder_pairs, high)));
  const auto units = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(hn::BitCast(d32, odd))),
                                 hn::BitCast(d16, even));
  const auto code = hn::Add(units, hn::ShiftRight<4>(exponent));
  const auto sign = hn::And(hn::ShiftRight<8>(x), hn::Set(d16, 0x80));
  return hn::IfThenElse(is_nan, hn::Set(d16, 0x7F), hn::Or(code, sign));
}

HWY_INLINE hn::Vec<ByteTag> codes_at(const std::uint16_t* from) {
  const hn::RebindToSigned<BF16Tag> di16;
  return hn::DemoteTo(ByteTag(), hn::BitCast(di16, e4m3_codes(hn::LoadU(BF16Tag(), from))));
}

/// Fewer than a vector holds.
void convert_rest(const std::uint16_t* from, std::uint8_t* to, std::int64_t count) {
  if (count == 0) return;
  HWY_ALIGN std::uint16_t lanes[HWY_MAX_BYTES / sizeof(std::uint16_t)] = {};
  HWY_ALIGN std::uint8_t codes[HWY_MAX_BYTES / sizeof(std::uint16_t)];
  std::copy_n(from, count, lanes);
  hn::Store(codes_at(lanes), ByteTag(), codes);
  std::copy_n(codes, count, to);
}

/// Elements up to the next multiple of a vector's bytes.
template <class Element>
std::int64_t unaligned_head(const Element* to, std::int64_t count) {
  constexpr std::int64_t kVector = hn::MaxLanes(FullByteTag());
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kVector);
  return std::min(count, (kVector - past) % kVector / static_cast<std::int64_t>(sizeof(Element)));
}

HWY_INLINE void convert(const std::uint16_t* from, std::uint8_t* to, std::int64_t count,
                        bool stream) {
  constexpr std::int64_t kLanes = hn::MaxLanes(BF16Tag());
  std::int64_t i = 0;
  if (stream) {
    const FullByteTag d8;
    const std::int64_t head = unaligned_head(to, count);
    for (; i + kLanes <= head; i += kLanes) hn::StoreU(codes_at(from + i), ByteTag(), to + i);
    convert_rest(from + i, to + i, head - i);
    for (i = head; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const auto low = codes_at(from + i);
      const auto high = codes_at(from + i + kLanes);
      hn::Stream(hn::Combine(d8, high, low), d8, to + i);
    }
  }
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(codes_at(from + i), ByteTag(), to + i);
  convert_rest(from + i, to + i, count - i);
}

HWY_INLINE void copy(const std::uint16_t* from, std::uint16_t* to, std::int64_t count,
                     bool stream) {
  const BF16Tag d;
  constexpr std::int64_t kLanes = hn::MaxLanes(BF16Tag());
  if (stream) {
    const std::int64_t head = unaligned_head(to, count);
    std::memcpy(to, from, static_cast<std::size_t>(head) * sizeof(*to));
    std::int64_t i = head;
    for (; i + kLanes <= count; i += kLanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
    from += i;
    to += i;
    count -= i;
  }
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(*to));
}

}  // namespace

/// to[i] = nope[i] | rope[i] for each row i. `stream`: past the caches.
void write_rows(const ConcatRows& rows, int nope_width, int rope_width, bool fp8, bool stream) {
  const auto* nope = reinterpret_cast<const std::uint16_t*>(rows.nope);
  const auto* rope = reinterpret_cast<const std::uint16_t*>(rows.rope);
  for (std::int64_t i = 0; i < rows.count; ++i) {
    if (fp8) {
      auto* const codes = static_cast<std::uint8_t*>(rows.to) + i * rows.to_stride;
      convert(nope + i * rows.nope_stride, codes, nope_width, stream);
      convert(rope + i * rows.rope_stride, codes + nope_width, rope_width, stream);
    } else {
      auto* const elements = static_cast<std::uint16_t*>(rows.to) + i * rows.to_stride;
      copy(nope + i * rows.nope_stride, elements, nope_width, stream);
      copy(rope + i * rows.rope_stride, elements + nope_width, rope_width, stream);
    }
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(write_rows);

constexpr std::int64_t kTaskElements = 65536;  ///< some 10 us: several rows
constexpr double kElementTime = 2e-4;          ///< microseconds of one thread, roughly
constexpr std::int64_t kStreamElements = std::int64_t{1} << 22;  ///< from here on past the caches

void* at(void* base, std::int64_t element, std::size_t bytes) {
  return static_cast<std::byte*>(base) + element * static_cast<std::int64_t>(bytes);
}

/// The rows of heads [begin, end) of token i.
ConcatRows query_rows(const MlaCacheWriteConcatQProblem& p, std::int64_t i, std::int64_t begin,
                      std::int64_t end) {
  return {.count = end - begin,
          .nope = p.q_nope + i * p.q_nope_token_stride + begin * p.q_nope_head_stride,
          .nope_stride = p.q_nope_head_stride,
          .rope = p.q_rope + i * p.q_rope_token_stride + begin * p.q_rope_head_stride,
          .rope_stride = p.q_rope_head_stride,
          .to = at(p.q_out, i * p.q_out_token_stride + begin * p.q_out_head_stride, p.out_bytes()),
          .to_stride = p.q_out_head_stride};
}

/// The cache row of token i; none where its slot is padding or another rank's.
ConcatRows cache_row(const MlaCacheWriteConcatQProblem& p, std::int64_t i) {
  const std::int64_t slot = p.slots[i];
  if (slot <= p.null_index || slot % p.dcp_world_size != p.dcp_rank) return {.count = 0};
  return {.nope = p.k_nope + i * p.k_nope_stride,
          .rope = p.k_rope + i * p.k_rope_stride,
          .to = at(p.kv_buffer, slot / p.dcp_world_size * p.kv_stride, p.out_bytes())};
}

}  // namespace

void mla_cache_write_concat_q(const MlaCacheWriteConcatQProblem& p, const Target& target) {
  const auto write = HWY_DYNAMIC_DISPATCH(write_rows);
  const std::int64_t width = std::int64_t{p.nope} + p.rope;
  if (p.B == 0 || width == 0) return;
  const std::int64_t token_elements = (std::int64_t{p.H} + 1) * width;
  const bool stream = p.B >= (kStreamElements + token_elements - 1) / token_elements;

  // A task is some heads of one token, or several tokens with all their heads.
  const std::int64_t task_heads = std::max<std::int64_t>(1, kTaskElements / width);
  const std::int64_t token_tasks = std::max<std::int64_t>(1, (p.H + task_heads - 1) / task_heads);
  const std::int64_t task_tokens = std::max<std::int64_t>(1, kTaskElements / token_elements);
  const std::int64_t num_tasks = (p.B + task_tokens - 1) / task_tokens * token_tasks;
  const int threads = useful_threads(target.threads, kElementTime * static_cast<double>(p.B) *
                                                         static_cast<double>(token_elements));
  parallel_for(num_tasks, threads, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t first = task / token_tasks * task_tokens;
    const std::int64_t begin = task % token_tasks * task_heads;
    const std::int64_t end = std::min<std::int64_t>(begin + task_heads, p.H);
    for (std::int64_t i = first; i < std::min(first + task_tokens, p.B); ++i) {
      write(query_rows(p, i, begin, end), p.nope, p.rope, p.fp8, stream);
      if (begin == 0) write(cache_row(p, i), p.nope, p.rope, p.fp8, stream);
    }
    if (stream) hwy::FlushStream();
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
