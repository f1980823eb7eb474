// SPDX-License-Identifier: Apache-2.0

// Vector conversion of fp32 to fp8 e4m3fn.

#if defined(K3_CPU_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_FP8_INL_H_
#undef K3_CPU_FP8_INL_H_
#else
#define K3_CPU_FP8_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "core/fp8.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The code of `to_e4m3(x)` in the low byte of each lane.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> e4m3_bits(DF df, hn::Vec<DF> x) {
  const hn::RebindToUnsigned<DF> du32;
  const hn::RebindToSigned<DF> di32;
  const auto u = hn::BitCast(du32, x);
  const auto sign = hn::And(hn::ShiftRight<24>(u), hn::Set(du32, 0x80));
  const auto magnitude = hn::And(u, hn::Set(du32, 0x7FFFFFFF));
  const auto as_signed = hn::BitCast(di32, magnitude);

  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(du32, 1));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du32, 0x7FFFF)), odd);
  const auto code = hn::Sub(hn::ShiftRight<20>(rounded), hn::Set(du32, 120 << 3));
  const auto shifted = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0x1p14F));
  const auto small_code = hn::And(hn::BitCast(du32, shifted), hn::Set(du32, 0xF));

  // Comparisons of signed integers: every target has them.
  const auto is_small = hn::RebindMask(du32, hn::Lt(as_signed, hn::Set(di32, 0x3C800000)));
  const auto is_large = hn::RebindMask(du32, hn::Gt(as_signed, hn::Set(di32, 0x43E00000 - 1)));
  const auto is_nan = hn::RebindMask(du32, hn::IsNaN(x));
  auto result = hn::IfThenElse(is_small, small_code, hn::Min(code, hn::Set(du32, 0x7E)));
  result = hn::IfThenElse(is_large, hn::Set(du32, 0x7E), result);
  return hn::IfThenElse(is_nan, hn::Set(du32, 0x7F), hn::Or(result, sign));
}

/// Stores Lanes(df) codes. No alignment.
template <class DF>
HWY_INLINE void store_e4m3(DF df, hn::Vec<DF> x, fp8_e4m3* to) {
  const hn::RebindToSigned<DF> di32;
  const hn::Rebind<std::uint8_t, DF> du8;
  hn::StoreU(hn::DemoteTo(du8, hn::BitCast(di32, e4m3_bits(df, x))), du8,
             reinterpret_cast<std::uint8_t*>(to));
}

/// Stores the first `count` < Lanes(df) codes; touches no memory beyond them.
template <class DF>
HWY_INLINE void store_e4m3_n(DF df, hn::Vec<DF> x, fp8_e4m3* to, std::size_t count) {
  HWY_ALIGN fp8_e4m3 lanes[HWY_MAX_BYTES / sizeof(float)];
  store_e4m3(df, x, lanes);
  for (std::size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
