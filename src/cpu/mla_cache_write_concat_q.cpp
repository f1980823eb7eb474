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
/// fits lanes of 16 bits, because the low halves of the fp32 numbers are zero, and those of the
/// sums too but for the result.
HWY_INLINE BF16Vec e4m3_codes(BF16Vec x) {
  const BF16Tag d16;
  const hn::RebindToSigned<BF16Tag> di16;
  const hn::Repartition<std::uint32_t, BF16Tag> d32;
  const hn::Repartition<float, BF16Tag> df;
  const auto signed_magnitude = hn::BitCast(di16, hn::And(x, hn::Set(d16, 0x7FFF)));
  const auto is_nan = hn::RebindMask(d16, hn::Gt(signed_magnitude, hn::Set(di16, 0x7F80)));
  const auto held = hn::Min(signed_magnitude, hn::Set(di16, 0x43E0));  // 448
  const auto exponent = hn::Max(hn::And(held, hn::Set(di16, 0x7F80)), hn::Set(di16, 0x3C80));
  const auto rounder = hn::BitCast(d32, hn::Add(exponent, hn::Set(di16, 20 << 7)));
  const auto pairs = hn::BitCast(d32, held);

  const auto high = hn::Set(d32, 0xFFFF0000);
  const auto even = hn::Add(hn::BitCast(df, hn::ShiftLeft<16>(pairs)),
                            hn::BitCast(df, hn::ShiftLeft<16>(rounder)));
  const auto odd =
      hn::Add(hn::BitCast(df, hn::And(pairs, high)), hn::BitCast(df, hn::And(rounder, high)));
  const auto units = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(hn::BitCast(d32, odd))),
                                 hn::BitCast(d16, even));
  // 121 is the biased exponent -6.
  const auto base = hn::Sub(hn::ShiftRight<4>(hn::BitCast(d16, exponent)), hn::Set(d16, 121 << 3));
  const auto sign = hn::And(hn::ShiftRight<8>(x), hn::Set(d16, 0x80));
  return hn::IfThenElse(is_nan, hn::Set(d16, 0x7F), hn::Or(hn::Add(units, base), sign));
}

HWY_INLINE hn::Vec<ByteTag> codes_at(const std::uint16_t* from) {
  const hn::RebindToSigned<BF16Tag> di16;
  return hn::DemoteTo(ByteTag(), hn::BitCast(di16, e4m3_codes(hn::LoadU(BF16Tag(), from))));
}

/// Fewer than a vector holds.
void convert_rest(const std::uint16_t* from, std::uint8_t* to, std::int64_t count) {
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

void convert(const std::uint16_t* from, std::uint8_t* to, std::int64_t count, bool stream) {
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

void copy(const std::uint16_t* from, std::uint16_t* to, std::int64_t count, bool stream) {
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

/// `to[0 .. nope + rope)` = nope | rope. `stream`: past the caches.
void write_row(const bf16* nope, const bf16* rope, void* to, int nope_width, int rope_width,
               bool fp8, bool stream) {
  const auto* nope_bits = reinterpret_cast<const std::uint16_t*>(nope);
  const auto* rope_bits = reinterpret_cast<const std::uint16_t*>(rope);
  if (fp8) {
    auto* const codes = static_cast<std::uint8_t*>(to);
    convert(nope_bits, codes, nope_width, stream);
    convert(rope_bits, codes + nope_width, rope_width, stream);
  } else {
    auto* const elements = static_cast<std::uint16_t*>(to);
    copy(nope_bits, elements, nope_width, stream);
    copy(rope_bits, elements + nope_width, rope_width, stream);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(write_row);

/// Elements per task, some 10 us: several rows.
constexpr std::int64_t kTaskElements = 65536;
constexpr double kElementTime = 2e-4;  ///< microseconds of one thread, roughly
constexpr std::int64_t kStreamElements = std::int64_t{1} << 22;  ///< from here on past the caches

/// The cache row that this rank writes for a slot, or -1.
std::int64_t row_of(const MlaCacheWriteConcatQProblem& p, std::int64_t slot) {
  const bool own = slot > p.null_index && slot % p.dcp_world_size == p.dcp_rank;
  return own ? slot / p.dcp_world_size : -1;
}

}  // namespace

void mla_cache_write_concat_q(const MlaCacheWriteConcatQProblem& p, const Target& target) {
  const auto write = HWY_DYNAMIC_DISPATCH(write_row);
  const std::int64_t width = std::int64_t{p.nope} + p.rope;
  if (p.B == 0 || width == 0) return;
  const std::int64_t num_rows = p.B * (std::int64_t{p.H} + 1);
  const bool stream = num_rows >= (kStreamElements + width - 1) / width;
  const auto at = [&p](void* base, std::int64_t element) {
    return static_cast<std::byte*>(base) + element * static_cast<std::int64_t>(p.out_bytes());
  };
  const auto write_cache_row = [&](std::int64_t i) {
    const std::int64_t row = row_of(p, p.slots[i]);
    if (row >= 0)
      write(p.k_nope + i * p.k_nope_stride, p.k_rope + i * p.k_rope_stride,
            at(p.kv_buffer, row * p.kv_stride), p.nope, p.rope, p.fp8, stream);
  };
  const auto write_query_row = [&](std::int64_t i, std::int64_t h) {
    write(p.q_nope + i * p.q_nope_token_stride + h * p.q_nope_head_stride,
          p.q_rope + i * p.q_rope_token_stride + h * p.q_rope_head_stride,
          at(p.q_out, i * p.q_out_token_stride + h * p.q_out_head_stride), p.nope, p.rope, p.fp8,
          stream);
  };

  // The rows of a token: its heads, then its cache row.
  const std::int64_t task_rows = std::max<std::int64_t>(1, kTaskElements / width);
  const std::int64_t num_tasks = (num_rows + task_rows - 1) / task_rows;
  const int threads = useful_threads(
      target.threads, kElementTime * static_cast<double>(num_rows) * static_cast<double>(width));
  parallel_for(num_tasks, threads, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t end = std::min((task + 1) * task_rows, num_rows);
    for (std::int64_t r = task * task_rows; r < end; ++r) {
      const std::int64_t i = r / (p.H + 1);
      const std::int64_t h = r % (p.H + 1);
      if (h < p.H)
        write_query_row(i, h);
      else
        write_cache_row(i);
    }
    if (stream) hwy::FlushStream();
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
