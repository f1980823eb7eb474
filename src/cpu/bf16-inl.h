// SPDX-License-Identifier: Apache-2.0

// Vector loads and stores of bf16 as fp32. Highway's own conversion truncates, so it is not used.

#if defined(K3_CPU_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_BF16_INL_H_
#undef K3_CPU_BF16_INL_H_
#else
#define K3_CPU_BF16_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "core/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Lanes(df) consecutive values. No alignment beyond the element.
template <class DF>
HWY_INLINE hn::Vec<DF> load_bf16(DF df, const bf16* from) {
  const hn::RebindToUnsigned<DF> du32;
  const hn::Rebind<std::uint16_t, DF> du16;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}

/// The bits of `to_bf16(x)` in the low half of each lane.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> bf16_bits(DF /*df*/, hn::Vec<DF> x) {
  const hn::RebindToUnsigned<DF> du32;
  const auto u = hn::BitCast(du32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du32, 1));
  const auto rounded = hn::Add(hn::Add(u, hn::Set(du32, 0x7FFF)), odd);
  // Rounding could carry a NaN's payload into the sign; it is made quiet instead.
  const auto quiet = hn::Or(u, hn::Set(du32, 0x400000));
  const auto is_nan = hn::RebindMask(du32, hn::IsNaN(x));
  return hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
}

/// x rounded to bf16, as fp32.
template <class DF>
HWY_INLINE hn::Vec<DF> round_to_bf16(DF df, hn::Vec<DF> x) {
  return hn::BitCast(df, hn::ShiftLeft<16>(bf16_bits(df, x)));
}

/// Stores Lanes(df) values, rounded to nearest even; NaN stays NaN. No alignment beyond the
/// element.
template <class DF>
HWY_INLINE void store_bf16(DF df, hn::Vec<DF> x, bf16* to) {
  const hn::RebindToSigned<DF> di32;
  const hn::Rebind<std::uint16_t, DF> du16;
  const auto bits = hn::BitCast(di32, bf16_bits(df, x));
  hn::StoreU(hn::DemoteTo(du16, bits), du16, reinterpret_cast<std::uint16_t*>(to));
}

// Vectors of words that hold two bf16 each come apart into fp32 vectors of their even elements (low
// halves) and of their odd ones in one instruction each, without a shuffle.

template <class V>
HWY_INLINE hn::Vec<hn::RebindToFloat<hn::DFromV<V>>> even_values(V pairs) {
  return hn::BitCast(hn::RebindToFloat<hn::DFromV<V>>(), hn::ShiftLeft<16>(pairs));
}
template <class V>
HWY_INLINE hn::Vec<hn::RebindToFloat<hn::DFromV<V>>> odd_values(V pairs) {
  const hn::DFromV<V> du32;
  return hn::BitCast(hn::RebindToFloat<decltype(du32)>(),
                     hn::And(pairs, hn::Set(du32, 0xFFFF0000)));
}

/// The bits of x rounded to bf16, to nearest even, in the high halves; the low ones hold rest. For
/// numbers, and for NaNs whose low half is zero: rounding leaves those alone.
template <class V>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<hn::DFromV<V>>> rounded_high_halves(V x) {
  const hn::RebindToUnsigned<hn::DFromV<V>> du32;
  const auto u = hn::BitCast(du32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du32, 1));
  return hn::Add(hn::Add(u, hn::Set(du32, 0x7FFF)), odd);
}

template <class DF>
struct EvenOdd {
  hn::Vec<DF> even;
  hn::Vec<DF> odd;
};

/// 2 * Lanes(df) consecutive values. No alignment beyond the element.
template <class DF>
HWY_INLINE EvenOdd<DF> load_even_odd(DF /*df*/, const bf16* from) {
  const hn::RebindToUnsigned<DF> du32;
  const hn::Repartition<std::uint16_t, DF> du16;
  const auto pairs =
      hn::BitCast(du32, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from)));
  return {even_values(pairs), odd_values(pairs)};
}

/// The first `count` < Lanes(df) values and zeros; touches no memory beyond them.
template <class DF>
HWY_INLINE hn::Vec<DF> load_bf16_n(DF df, const bf16* from, std::size_t count) {
  HWY_ALIGN bf16 lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load_bf16(df, lanes);
}

/// Stores the first `count` < Lanes(df) values; touches no memory beyond them.
template <class DF>
HWY_INLINE void store_bf16_n(DF df, hn::Vec<DF> x, bf16* to, std::size_t count) {
  HWY_ALIGN bf16 lanes[HWY_MAX_BYTES / sizeof(float)];
  store_bf16(df, x, lanes);
  for (std::size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
