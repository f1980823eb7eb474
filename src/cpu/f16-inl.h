// SPDX-License-Identifier: Apache-2.0

// Vector loads and stores of IEEE half precision as fp32. Highway's own are used where the CPU
// converts; in their place it truncates, and knows no infinity.

#if defined(K3_CPU_F16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_F16_INL_H_
#undef K3_CPU_F16_INL_H_
#else
#define K3_CPU_F16_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "core/f16.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4

/// Lanes(df) consecutive values. No alignment beyond the element.
template <class DF>
HWY_INLINE hn::Vec<DF> load_f16(DF df, const f16* from) {
  HWY_ALIGN float lanes[hn::MaxLanes(DF())];
  for (std::size_t i = 0; i < hn::Lanes(df); ++i) lanes[i] = to_float(from[i]);
  return hn::Load(df, lanes);
}

/// Stores Lanes(df) values, rounded to nearest even. No alignment beyond the element.
template <class DF>
HWY_INLINE void store_f16(DF df, hn::Vec<DF> x, f16* to) {
  HWY_ALIGN float lanes[hn::MaxLanes(DF())];
  hn::Store(x, df, lanes);
  for (std::size_t i = 0; i < hn::Lanes(df); ++i) to[i] = to_f16(lanes[i]);
}

#else

template <class DF>
HWY_INLINE hn::Vec<DF> load_f16(DF df, const f16* from) {
  const hn::Rebind<hwy::float16_t, DF> df16;
  return hn::PromoteTo(df, hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(from)));
}

template <class DF>
HWY_INLINE void store_f16(DF /*df*/, hn::Vec<DF> x, f16* to) {
  const hn::Rebind<hwy::float16_t, DF> df16;
  hn::StoreU(hn::DemoteTo(df16, x), df16, reinterpret_cast<hwy::float16_t*>(to));
}

#endif

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
