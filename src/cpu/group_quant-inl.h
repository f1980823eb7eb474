// SPDX-License-Identifier: Apache-2.0

// Quantisation of one group of values (core/group_quant.h), bit for bit as on the GPU.

#if defined(K3_CPU_GROUP_QUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_GROUP_QUANT_INL_H_
#undef K3_CPU_GROUP_QUANT_INL_H_
#else
#define K3_CPU_GROUP_QUANT_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

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
  float amax = 0.0F;  ///< of the numbers alone; infinity may be one
  bool finite = true;
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
  const GroupTag df;
  const GroupTag16 di16;
  const hn::RebindToUnsigned<GroupTag> du32;
  const auto bits = hn::LoadU(di16, reinterpret_cast<const std::int16_t*>(from));
  const auto pairs = hn::BitCast(du32, hn::And(bits, hn::Set(di16, 0x7FFF)));
  return {hn::BitCast(df, hn::ShiftLeft<16>(pairs)),
          hn::BitCast(df, hn::And(pairs, hn::Set(du32, 0xFFFF0000))), hn::ShiftRight<15>(bits)};
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

/// The largest magnitude by bit patterns: a NaN is the largest of all.
HWY_INLINE float largest_pattern(const bf16* x, std::size_t count) {
  const GroupTag16 di16;
  const auto magnitude = hn::Set(di16, 0x7FFF);
  auto largest = hn::Zero(di16);
  for (std::size_t i = 0; i < count; i += hn::Lanes(di16)) {
    const auto bits = hn::LoadU(di16, reinterpret_cast<const std::int16_t*>(x + i));
    largest = hn::Max(largest, hn::And(bits, magnitude));
  }
  const auto bits = hn::GetLane(hn::MaxOfLanes(di16, largest));
  return to_float(bf16{static_cast<std::uint16_t>(bits)});
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

/// The codes of a non-negative y of at most 448 and a rounding error, plus kCodeBias. With E the
/// power of two below y, but at least 2^-6, adding 2^20 E leaves y in units of E / 8, rounded to
/// even, in the last bits of the sum; those units count on from E's own place among the codes, in
/// the subnormals, too.
inline constexpr int kCodeBias = 121 << 3;
HWY_INLINE hn::Vec<hn::RebindToUnsigned<GroupTag>> biased_e4m3(hn::Vec<GroupTag> y) {
  const GroupTag df;
  const hn::RebindToSigned<GroupTag> di32;
  const auto exponent =
      hn::Max(hn::And(hn::BitCast(di32, y), hn::Set(di32, 0x7F800000)), hn::Set(di32, 121 << 23));
  const auto anchor = hn::Add(exponent, hn::Set(di32, 20 << 23));
  const auto units = hn::Sub(hn::BitCast(di32, hn::Add(y, hn::BitCast(df, anchor))), anchor);
  return hn::BitCast(hn::RebindToUnsigned<GroupTag>(),
                     hn::Add(units, hn::ShiftRight<20>(exponent)));
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

/// The scale and the `count` codes of a group; count is a multiple of 16.
template <QuantFormat kFormat, class T>
HWY_INLINE GroupScale quantise_group(const T* x, std::size_t count, std::uint8_t* codes) {
  const GroupAmax group = group_amax(x, count);
  const GroupScale scale = group_scale(kFormat, group.amax);
  if (!group.finite) {
    for (std::size_t i = 0; i < count; ++i)
      codes[i] = quantise_value<kFormat>(detail::widened(x[i]), scale.multiplier);
    return scale;
  }
  const GroupTag df;
  const GroupTag16 di16;
  const hn::RebindToSigned<GroupTag> di32;
  const hn::RebindToUnsigned<GroupTag> du32;
  const auto multiplier = hn::Set(df, scale.multiplier);
  for (std::size_t i = 0; i < count; i += hn::Lanes(di16)) {
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
      const hn::Rebind<std::uint8_t, GroupTag16> du8;
      const auto biased = detail::interleave(detail::biased_e4m3(even), detail::biased_e4m3(odd));
      const auto sign = hn::And(values.negative, hn::Set(di16, 0x80));
      const auto codes16 = hn::Or(hn::Sub(biased, hn::Set(di16, detail::kCodeBias)), sign);
      hn::StoreU(hn::DemoteTo(du8, codes16), du8, codes + i);
    }
  }
  return scale;
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
