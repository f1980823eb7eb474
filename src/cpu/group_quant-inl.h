// SPDX-License-Identifier: Apache-2.0

// Quantisation of one group of values (core/group_quant.h), bit for bit as on the GPU.

#if defined(K3_CPU_GROUP_QUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_GROUP_QUANT_INL_H_
#undef K3_CPU_GROUP_QUANT_INL_H_
#else
#define K3_CPU_GROUP_QUANT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/group_quant.h"
#include "cpu/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Two vectors of it, as many values as one of the other, divide a group: its size is a multiple of
/// 16.
using GroupTag = hn::CappedTag<float, 8>;
using GroupTag16 = hn::Repartition<std::int16_t, GroupTag>;

/// The largest magnitude of a group, and whether all of it is finite.
struct GroupAmax {
  float amax;  ///< of the numbers alone; infinity may be one
  bool finite;
};

namespace detail {

HWY_INLINE float widened(bf16 x) { return to_float(x); }
HWY_INLINE float widened(float x) { return x; }

/// Neighbouring values: magnitudes by parity of their place, and lanes of 16 bits in order, all
/// ones where a value is negative.
struct Magnitudes {
  hn::Vec<GroupTag> even;
  hn::Vec<GroupTag> odd;
  hn::Vec<GroupTag16> negative;
};

HWY_INLINE Magnitudes load_magnitudes(const bf16* from) {
  const GroupTag16 di16;
  const hn::RebindToUnsigned<GroupTag> du32;
  const auto bits = hn::LoadU(di16, reinterpret_cast<const std::int16_t*>(from));
  const auto pairs = hn::BitCast(du32, hn::And(bits, hn::Set(di16, 0x7FFF)));
  return {even_values(pairs), odd_values(pairs), hn::ShiftRight<15>(bits)};
}

/// 32-bit lanes, of which the low halves count, as 16-bit lanes.
HWY_INLINE hn::Vec<GroupTag16> interleave(hn::Vec<hn::RebindToUnsigned<GroupTag>> even,
                                          hn::Vec<hn::RebindToUnsigned<GroupTag>> odd) {
  return hn::BitCast(GroupTag16(), hn::Or(even, hn::ShiftLeft<16>(odd)));
}

HWY_INLINE Magnitudes load_magnitudes(const float* from) {
  const GroupTag df;
  const hn::RebindToUnsigned<GroupTag> du32;
  const auto first = hn::LoadU(df, from);
  const auto second = hn::LoadU(df, from + hn::Lanes(df));
  const auto even = hn::ConcatEven(df, second, first);
  const auto odd = hn::ConcatOdd(df, second, first);
  const auto signs = interleave(hn::ShiftRight<16>(hn::BitCast(du32, even)),
                                hn::ShiftRight<16>(hn::BitCast(du32, odd)));
  return {hn::Abs(even), hn::Abs(odd), hn::ShiftRight<15>(signs)};
}

/// Of non-negative lanes. In 8 unsigned lanes some targets have an instruction for it.
template <class D>
HWY_INLINE std::uint16_t largest_of_lanes(D /*d*/, hn::Vec<D> lanes) {
  if constexpr (sizeof(lanes) > 16) {
    const hn::Half<D> half;
    return largest_of_lanes(half, hn::Max(hn::LowerHalf(half, lanes), hn::UpperHalf(half, lanes)));
  } else {
    const hn::RebindToUnsigned<D> du16;
    return hn::GetLane(hn::MaxOfLanes(du16, hn::BitCast(du16, lanes)));
  }
}

/// Lane by lane the largest magnitude of a group by bit patterns: a NaN is the largest of all.
HWY_INLINE hn::Vec<GroupTag16> largest_by_lane(const bf16* x, std::size_t count) {
  const GroupTag16 di16;
  const auto magnitude = hn::Set(di16, 0x7FFF);
  auto largest = hn::Zero(di16);
  for (std::size_t i = 0; i < count; i += hn::Lanes(di16)) {
    const auto bits = hn::LoadU(di16, reinterpret_cast<const std::int16_t*>(x + i));
    largest = hn::Max(largest, hn::And(bits, magnitude));
  }
  return largest;
}

HWY_INLINE float largest_pattern(const bf16* x, std::size_t count) {
  return to_float(bf16{largest_of_lanes(GroupTag16(), largest_by_lane(x, count))});
}

/// Lanes of both halves of each 128-bit block as lanes of D that take turns: half as many of each.
template <class D>
HWY_INLINE hn::Vec<GroupTag16> fold(D d, hn::Vec<GroupTag16> a, hn::Vec<GroupTag16> b) {
  const GroupTag16 di16;
  const auto low = hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b));
  const auto high = hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b));
  return hn::Max(hn::BitCast(di16, low), hn::BitCast(di16, high));
}

/// The larger ones of all 128-bit blocks.
template <class D>
HWY_INLINE void store_block(D d, hn::Vec<D> lanes, std::uint16_t* to) {
  if constexpr (sizeof(lanes) > 16) {
    const hn::Half<D> half;
    store_block(half, hn::Max(hn::LowerHalf(half, lanes), hn::UpperHalf(half, lanes)), to);
  } else {
    hn::StoreU(lanes, d, reinterpret_cast<std::int16_t*>(to));
  }
}

/// The largest patterns of kFolded groups of `count` values each, in order.
inline constexpr std::size_t kFolded = 8;
HWY_INLINE void largest_patterns(const bf16* x, std::size_t count, std::uint16_t* to) {
  const GroupTag16 di16;
  const hn::Repartition<std::int32_t, GroupTag16> di32;
  const hn::Repartition<std::int64_t, GroupTag16> di64;
  hn::Vec<GroupTag16> pairs[kFolded / 2];
  for (std::size_t i = 0; i < kFolded; i += 2)
    pairs[i / 2] = fold(di16, largest_by_lane(x + i * count, count),
                        largest_by_lane(x + (i + 1) * count, count));
  const auto all = fold(di64, fold(di32, pairs[0], pairs[1]), fold(di32, pairs[2], pairs[3]));
  store_block(di16, all, to);
}

HWY_INLINE float largest_pattern(const float* x, std::size_t count) {
  const hn::RebindToSigned<GroupTag> di32;
  const auto magnitude = hn::Set(di32, 0x7FFFFFFF);
  auto largest = hn::Zero(di32);
  for (std::size_t i = 0; i < count; i += hn::Lanes(di32)) {
    const auto bits = hn::LoadU(di32, reinterpret_cast<const std::int32_t*>(x + i));
    largest = hn::Max(largest, hn::And(bits, magnitude));
  }
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di32, largest)));
}

/// The code of 2^-6, the least number with a full mantissa.
inline constexpr int kExponentOffset = 120;

/// The codes of non-negative values of at most 448 and a rounding error, in the order of the pairs.
/// With E the power of two below y, but at least 2^-6, adding 2^20 E leaves y in units of E / 8,
/// rounded to even, in the last bits of the sum; those units count on from E's own place among the
/// codes, in the subnormals, too.
HWY_INLINE hn::Vec<GroupTag16> e4m3_of_magnitudes(hn::Vec<GroupTag> even, hn::Vec<GroupTag> odd) {
  const GroupTag df;
  const GroupTag16 di16;
  const hn::RebindToSigned<GroupTag> di32;
  const hn::RebindToUnsigned<GroupTag> du32;
  constexpr int kShift = 20;
  const auto sum_of = [=](hn::Vec<GroupTag> y) HWY_ATTR {
    const auto exponent = hn::Max(hn::And(hn::BitCast(di32, y), hn::Set(di32, 0x7F800000)),
                                  hn::Set(di32, (kExponentOffset + 1) << 23));
    return hn::BitCast(du32,
                       hn::Add(y, hn::BitCast(df, hn::Add(exponent, hn::Set(di32, kShift << 23)))));
  };
  const auto even_sum = sum_of(even);
  const auto odd_sum = sum_of(odd);
  const auto units =
      hn::OddEven(hn::BitCast(di16, hn::ShiftLeft<16>(odd_sum)), hn::BitCast(di16, even_sum));
  const auto exponents =
      hn::OddEven(hn::BitCast(di16, odd_sum), hn::BitCast(di16, hn::ShiftRight<16>(even_sum)));
  const auto biased = hn::Add(units, hn::ShiftRight<4>(exponents));
  return hn::Sub(biased, hn::Set(di16, (kExponentOffset + 1 + kShift) << 3));
}

/// The codes of bf16 magnitudes times a power of two, without their signs, where all of them are
/// numbers with a full mantissa: rounding and scaling are sums of bit patterns then.
HWY_INLINE hn::Vec<GroupTag16> e4m3_of_patterns(hn::Vec<GroupTag16> magnitudes, int scale_byte) {
  const GroupTag16 di16;
  const auto odd = hn::And(hn::ShiftRight<4>(magnitudes), hn::Set(di16, 1));
  const auto rounded = hn::Add(hn::Add(magnitudes, hn::Set(di16, 7)), odd);
  const auto offset = static_cast<std::int16_t>((scale_byte - 127 + kExponentOffset) << 3);
  return hn::Sub(hn::ShiftRight<4>(rounded), hn::Set(di16, offset));
}

/// Adds the signs of the values at `x` and stores.
HWY_INLINE void store_e4m3_codes(hn::Vec<GroupTag16> codes, hn::Vec<GroupTag16> negative,
                                 std::uint8_t* to) {
  const GroupTag16 di16;
  const hn::Rebind<std::uint8_t, GroupTag16> du8;
  const auto with_sign = hn::Or(codes, hn::And(negative, hn::Set(di16, 0x80)));
  hn::StoreU(hn::DemoteTo(du8, with_sign), du8, to);
}

}  // namespace detail

/// `x` is bf16 or float.
template <class T>
HWY_INLINE GroupAmax group_amax(const T* x, std::size_t count) {
  const float largest = detail::largest_pattern(x, count);
  if (std::isfinite(largest)) return {largest, true};
  GroupAmax result = {0.0F, false};
  for (std::size_t i = 0; i < count; ++i)
    if (const float magnitude = std::fabs(detail::widened(x[i])); magnitude > result.amax)
      result.amax = magnitude;
  return result;
}

/// group_amax of up to 32 groups, one behind the other: the magnitudes, and a bit for each group
/// with a value that is not finite.
template <class T>
HWY_INLINE std::uint32_t group_amaxes(const T* x, std::size_t size, std::size_t count,
                                      float* amax) {
  std::uint32_t not_finite = 0;
  std::size_t i = 0;
  const auto take = [&](std::size_t end) HWY_ATTR {
    for (; i < end; ++i) {
      const GroupAmax group = group_amax(x + i * size, size);
      amax[i] = group.amax;
      not_finite |= static_cast<std::uint32_t>(!group.finite) << i;
    }
  };
  // The tree of exchanges pays where a group has few vectors.
  constexpr std::size_t kSmall = 64;
  if constexpr (std::is_same_v<T, bf16>) {
    while (size <= kSmall && i + detail::kFolded <= count) {
      std::uint16_t patterns[detail::kFolded];
      detail::largest_patterns(x + i * size, size, patterns);
      std::uint16_t largest = 0;
      for (std::size_t j = 0; j < detail::kFolded; ++j) {
        amax[i + j] = to_float(bf16{patterns[j]});
        largest = std::max(largest, patterns[j]);
      }
      if (largest >= 0x7F80)
        take(i + detail::kFolded);
      else
        i += detail::kFolded;
    }
  }
  take(count);
  return not_finite;
}

/// One code, of any value.
template <QuantFormat kFormat>
HWY_INLINE std::uint8_t quantise_value(float x, float multiplier) {
  constexpr float kMax = kFormat == QuantFormat::kI8 ? 127.0F : kMaxE4M3;
  const float scaled = x * multiplier;
  const float held = scaled < kMax ? scaled : kMax;  // of a NaN: kMax
  if constexpr (kFormat == QuantFormat::kI8)
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(held > -128.0F ? held : -128.0F));
  else
    return to_e4m3(held).bits;
}

/// The `count` codes of a group, a multiple of 16; `finite` as group_amax says.
template <QuantFormat kFormat, class T>
HWY_INLINE void quantise_codes(const T* x, std::size_t count, const GroupScale& scale, bool finite,
                               std::uint8_t* codes) {
  if (!finite) {
    for (std::size_t i = 0; i < count; ++i)
      codes[i] = quantise_value<kFormat>(detail::widened(x[i]), scale.multiplier);
    return;
  }
  const GroupTag df;
  const GroupTag16 di16;
  const hn::RebindToSigned<GroupTag> di32;
  const hn::RebindToUnsigned<GroupTag> du32;
  const auto multiplier = hn::Set(df, scale.multiplier);
  // A bf16 pattern from which on a value has a code with a full mantissa.
  const auto least_full = hn::Set(di16, static_cast<std::int16_t>((scale.byte - 6) << 7));
  for (std::size_t i = 0; i < count; i += hn::Lanes(di16)) {
    if constexpr (kFormat == QuantFormat::kE4M3UE8M0 && std::is_same_v<T, bf16>) {
      const auto bits = hn::LoadU(di16, reinterpret_cast<const std::int16_t*>(x + i));
      const auto magnitudes = hn::And(bits, hn::Set(di16, 0x7FFF));
      if (hn::AllFalse(di16, hn::Lt(magnitudes, least_full))) {
        detail::store_e4m3_codes(detail::e4m3_of_patterns(magnitudes, scale.byte),
                                 hn::ShiftRight<15>(bits), codes + i);
        continue;
      }
    }
    const detail::Magnitudes values = detail::load_magnitudes(x + i);
    const auto even = hn::Mul(values.even, multiplier);
    const auto odd = hn::Mul(values.odd, multiplier);
    if constexpr (kFormat == QuantFormat::kI8) {
      const hn::Rebind<std::int8_t, GroupTag16> di8;
      const auto truncated = detail::interleave(hn::BitCast(du32, hn::ConvertTo(di32, even)),
                                                hn::BitCast(du32, hn::ConvertTo(di32, odd)));
      const auto codes16 = hn::Sub(hn::Xor(truncated, values.negative), values.negative);
      hn::StoreU(hn::DemoteTo(di8, codes16), di8, reinterpret_cast<std::int8_t*>(codes + i));
    } else {
      detail::store_e4m3_codes(detail::e4m3_of_magnitudes(even, odd), values.negative, codes + i);
    }
  }
}

/// Scale and codes of a group by itself.
template <QuantFormat kFormat, class T>
HWY_INLINE GroupScale quantise_group(const T* x, std::size_t count, std::uint8_t* codes) {
  const GroupAmax group = group_amax(x, count);
  const GroupScale scale = group_scale(kFormat, group.amax);
  quantise_codes<kFormat>(x, count, scale, group.finite, codes);
  return scale;
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
