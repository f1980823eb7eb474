// SPDX-License-Identifier: Apache-2.0

// States in memory (f32 or bf16, [V, K] or [K, V]) to and from the panels of PrefillScratch.

#if defined(K3_CPU_KDA_PREFILL_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_KDA_PREFILL_STATE_INL_H_
#undef K3_CPU_KDA_PREFILL_STATE_INL_H_
#else
#define K3_CPU_KDA_PREFILL_STATE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "cpu/bf16-inl.h"
#include "cpu/kda_prefill_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace prefill {

HWY_INLINE void store_f32(V4 x, float* to) { hn::StoreU(x, D4(), to); }
HWY_INLINE void store_f32(V4 x, bf16* to) { store_bf16(D4(), x, to); }

HWY_INLINE void transpose(V4& a, V4& b, V4& c, V4& d) {
  const D4 d4;
  const V4 ac_low = hn::InterleaveLower(d4, a, c);
  const V4 ac_high = hn::InterleaveUpper(d4, a, c);
  const V4 bd_low = hn::InterleaveLower(d4, b, d);
  const V4 bd_high = hn::InterleaveUpper(d4, b, d);
  a = hn::InterleaveLower(d4, ac_low, bd_low);
  b = hn::InterleaveUpper(d4, ac_low, bd_low);
  c = hn::InterleaveLower(d4, ac_high, bd_high);
  d = hn::InterleaveUpper(d4, ac_high, bd_high);
}

/// Four rows of four, `stride` apart, at `from` to rows of stride `to_stride` at `to`.
template <bool kTransposed, class From, class To>
HWY_INLINE void copy_tile(const From* from, int stride, To* to, int to_stride) {
  const D4 d4;
  V4 a = load_f32(d4, from);
  V4 b = load_f32(d4, from + stride);
  V4 c = load_f32(d4, from + 2 * stride);
  V4 d = load_f32(d4, from + 3 * stride);
  if constexpr (kTransposed) transpose(a, b, c, d);
  store_f32(a, to);
  store_f32(b, to + to_stride);
  store_f32(c, to + 2 * to_stride);
  store_f32(d, to + 3 * to_stride);
}

/// The two directions of a copy between columns [v0, v1) of a state and its panels.
template <StateLayout kLayout, class T>
void load_columns(const T* from, int v0, int v1, float* panels) {
  for (int v = v0; v < v1; v += 4) {
    float* column = panels + (v / kPanel) * kPanel * kD + v % kPanel;
    for (int k = 0; k < kD; k += 4) {
      if constexpr (kLayout == StateLayout::kVK)
        copy_tile<true>(from + v * kD + k, kD, column + k * kPanel, kPanel);
      else
        copy_tile<false>(from + k * kD + v, kD, column + k * kPanel, kPanel);
    }
  }
}
template <StateLayout kLayout, class T>
void store_columns(const float* panels, int v0, int v1, T* to) {
  for (int v = v0; v < v1; v += 4) {
    const float* column = panels + (v / kPanel) * kPanel * kD + v % kPanel;
    for (int k = 0; k < kD; k += 4) {
      if constexpr (kLayout == StateLayout::kVK)
        copy_tile<true>(column + k * kPanel, kPanel, to + v * kD + k, kD);
      else
        copy_tile<false>(column + k * kPanel, kPanel, to + k * kD + v, kD);
    }
  }
}

/// `offset` counts elements.
inline void load_state(const void* from, DType dtype, std::int64_t offset, StateLayout layout,
                       int v0, int v1, float* panels) {
  const auto load = [&](const auto* state) {
    if (layout == StateLayout::kVK)
      load_columns<StateLayout::kVK>(state + offset, v0, v1, panels);
    else
      load_columns<StateLayout::kKV>(state + offset, v0, v1, panels);
  };
  if (dtype == DType::kF32)
    load(static_cast<const float*>(from));
  else
    load(static_cast<const bf16*>(from));
}

inline void store_state(const float* panels, int v0, int v1, StateLayout layout, void* to,
                        DType dtype, std::int64_t offset) {
  const auto store = [&](auto* state) {
    if (layout == StateLayout::kVK)
      store_columns<StateLayout::kVK>(panels, v0, v1, state + offset);
    else
      store_columns<StateLayout::kKV>(panels, v0, v1, state + offset);
  };
  if (dtype == DType::kF32)
    store(static_cast<float*>(to));
  else
    store(static_cast<bf16*>(to));
}

}  // namespace prefill
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
