// SPDX-License-Identifier: Apache-2.0

// T128: the library's one order of summation for dot products of 128 elements.
//
//   1. 32 groups of 4 consecutive elements: p = x0*y0, then p = fma(x1, y1, p), x2*y2, x3*y3.
//   2. A balanced binary tree that joins adjacent groups first: distances 1, 2, 4, 8, 16.
//
// Defined by element index alone, so that a single step, a verify over several tokens and a replay
// agree bit for bit, whatever their schedule. De-interleaving loads put one group in one lane, which
// makes step 1 a vertical multiply-add. The number of lanes never changes a bit; a target without
// fused multiply-add (SSSE3, SSE4) rounds each product and may differ in the last places.

#if defined(K3_CPU_T128_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_T128_INL_H_
#undef K3_CPU_T128_INL_H_
#else
#define K3_CPU_T128_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/bf16.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kT128Groups = 32;
inline constexpr std::size_t kT128Length = 4 * kT128Groups;

/// 8 lanes where the target has them, 4 on 128-bit targets.
using T128Tag = hn::CappedTag<float, 8>;
using T128Vec = hn::Vec<T128Tag>;
using T128Quad = hn::FixedTag<float, 4>;
using T128QuadVec = hn::Vec<T128Quad>;

/// Step 2 over the 32 group sums.
HWY_INLINE float t128_tree(const float* groups) {
  float sums[kT128Groups / 2];
  for (std::size_t i = 0; i < kT128Groups / 2; ++i) sums[i] = groups[2 * i] + groups[2 * i + 1];
  for (std::size_t n = kT128Groups / 4; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums[0];
}

/// The definition in scalar code: what the vector forms below must equal.
inline float t128_dot_scalar(const float* x, const float* y) {
  float groups[kT128Groups];
  for (std::size_t i = 0; i < kT128Groups; ++i) {
    const float* const a = x + 4 * i;
    const float* const b = y + 4 * i;
    groups[i] = std::fma(a[3], b[3], std::fma(a[2], b[2], std::fma(a[1], b[1], a[0] * b[0])));
  }
  return t128_tree(groups);
}

/// Four vectors of consecutive groups: lane i of element e is element e of group i.
struct T128Elements {
  T128Vec e0, e1, e2, e3;
};

HWY_INLINE T128Elements t128_load(const float* from) {
  T128Elements x;
  hn::LoadInterleaved4(T128Tag(), from, x.e0, x.e1, x.e2, x.e3);
  return x;
}

HWY_INLINE T128Elements t128_load(const bf16* from) {
  const T128Tag df;
  const hn::RebindToUnsigned<T128Tag> du32;
  const hn::Rebind<std::uint16_t, T128Tag> du16;
  hn::Vec<decltype(du16)> b0, b1, b2, b3;
  hn::LoadInterleaved4(du16, reinterpret_cast<const std::uint16_t*>(from), b0, b1, b2, b3);
  const auto widen = [&](hn::Vec<decltype(du16)> bits) HWY_ATTR {
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
  };
  return {widen(b0), widen(b1), widen(b2), widen(b3)};
}

/// Lanes(T128Tag()) groups that `t128_split` has laid out: element e in vector e.
HWY_INLINE T128Elements t128_load_split(const float* from) {
  const T128Tag d;
  const std::size_t lanes = hn::Lanes(d);
  return {hn::LoadU(d, from), hn::LoadU(d, from + lanes), hn::LoadU(d, from + 2 * lanes),
          hn::LoadU(d, from + 3 * lanes)};
}

/// De-interleaves 128 elements once, for use against many rows.
HWY_INLINE void t128_split(const float* from, float* split) {
  const T128Tag d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < kT128Length; i += 4 * lanes) {
    const T128Elements x = t128_load(from + i);
    hn::StoreU(x.e0, d, split + i);
    hn::StoreU(x.e1, d, split + i + lanes);
    hn::StoreU(x.e2, d, split + i + 2 * lanes);
    hn::StoreU(x.e3, d, split + i + 3 * lanes);
  }
}

HWY_INLINE T128Elements t128_mul(const T128Elements& x, const T128Elements& y) {
  return {hn::Mul(x.e0, y.e0), hn::Mul(x.e1, y.e1), hn::Mul(x.e2, y.e2), hn::Mul(x.e3, y.e3)};
}

/// Step 1: one group sum per lane.
HWY_INLINE T128Vec t128_group_sums(const T128Elements& x, const T128Elements& y) {
  auto p = hn::Mul(x.e0, y.e0);
  p = hn::MulAdd(x.e1, y.e1, p);
  p = hn::MulAdd(x.e2, y.e2, p);
  return hn::MulAdd(x.e3, y.e3, p);
}

/// One dot product of two vectors in their natural order.
HWY_INLINE float t128_dot(const float* x, const float* y) {
  const T128Tag d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN float groups[kT128Groups];
  for (std::size_t i = 0; i < kT128Groups; i += lanes)
    hn::StoreU(t128_group_sums(t128_load(x + 4 * i), t128_load(y + 4 * i)), d, groups + i);
  return t128_tree(groups);
}

/// Sums of lanes at distance 1 (or 2): of `a` in the lanes whose bit 0 (or 1) is clear, of `b` in
/// the others. Two levels of joins thus leave vector i's sum over 4 lanes in lane i of each quad.
template <class D>
HWY_INLINE hn::Vec<D> t128_join1(D, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::Add(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
}
template <class D>
HWY_INLINE hn::Vec<D> t128_join2(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const hn::Repartition<double, D> pairs;
  const auto a2 = hn::BitCast(pairs, a);
  const auto b2 = hn::BitCast(pairs, b);
  return hn::Add(hn::BitCast(d, hn::OddEven(b2, a2)),
                 hn::Shuffle1032(hn::BitCast(d, hn::OddEven(a2, b2))));
}
template <class D>
HWY_INLINE hn::Vec<D> t128_join(D d, const hn::Vec<D> (&x)[4]) {
  return t128_join2(d, t128_join1(d, x[0], x[1]), t128_join1(d, x[2], x[3]));
}

/// Group sums of one dot product, on their way to its four sums over 32 elements.
template <class D>
class T128BlocksOf {
 public:
  /// `index` counts vectors of Lanes(D()) groups.
  HWY_INLINE void set(std::size_t index, hn::Vec<D> group_sums) {
    sums_[index % kParts][index / kParts] = group_sums;
  }

  /// Distances 1, 2 and 4: lane i is the sum over groups 8 i .. 8 i + 7.
  HWY_INLINE T128QuadVec sum() const {
    const D d;
    if constexpr (kParts == 1) {
      const auto quads = t128_join(d, sums_[0]);
      return hn::Add(hn::LowerHalf(T128Quad(), quads), hn::UpperHalf(T128Quad(), quads));
    } else {
      return hn::Add(t128_join(d, sums_[0]), t128_join(d, sums_[1]));
    }
  }

 private:
  static constexpr std::size_t kParts = 8 / hn::MaxLanes(D());
  hn::Vec<D> sums_[kParts][4];
};
using T128Blocks = T128BlocksOf<T128Tag>;

/// Distances 8 and 16 of four dot products at once; lane i is the result of blocks[i].
HWY_INLINE T128QuadVec t128_finish(const T128QuadVec (&blocks)[4]) {
  return t128_join(T128Quad(), blocks);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
