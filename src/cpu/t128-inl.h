// SPDX-License-Identifier: Apache-2.0

// T128: the library's one order of summation for dot products of 128 elements.
//
//   1. 32 groups of 4 consecutive elements: p = x0*y0, then p = fma(x1, y1, p), x2*y2, x3*y3.
//   2. A balanced binary tree that joins adjacent groups first: distances 1, 2, 4, 8, 16.
//
// Defined by element index alone, so that a single step, a verify over several tokens and a replay
// agree bit for bit, whatever their schedule. The vector form transposes 4 x 4 elements within each
// 128-bit block, which puts one group in one lane and makes step 1 a vertical multiply-add. The
// number of lanes never changes a bit; a target without fused multiply-add (SSSE3, SSE4) rounds
// each product and may differ in the last places.

#if defined(K3_CPU_T128_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_CPU_T128_INL_H_
#undef K3_CPU_T128_INL_H_
#else
#define K3_CPU_T128_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <iterator>

#include "cpu/bf16-inl.h"
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

/// The definition in scalar code: what the vector forms below must equal.
inline float t128_dot_scalar(const float* x, const float* y) {
  float sums[kT128Groups];
  for (std::size_t i = 0; i < kT128Groups; ++i) {
    const float* const a = x + 4 * i;
    const float* const b = y + 4 * i;
    sums[i] = std::fma(a[3], b[3], std::fma(a[2], b[2], std::fma(a[1], b[1], a[0] * b[0])));
  }
  for (std::size_t n = kT128Groups / 2; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums[0];
}

/// Vectors in a row of 128 elements whose every group is one lane.
inline constexpr std::size_t kT128Vectors = kT128Groups / hn::MaxLanes(T128Tag());

/// Lanes(T128Tag()) groups; vector e holds their elements e. Of the 8 groups of 32 elements, 0 2 4
/// 6 stand in one quad of lanes and 1 3 5 7 in the next (of the same vector, or of the next one),
/// so that the transposition never crosses a 128-bit block and the tree's first level adds two
/// quads.
struct T128Elements {
  T128Vec e0, e1, e2, e3;
};

/// `x` in a register. g++ otherwise turns each use of a loaded vector into a load of its own, and
/// on AVX2 the loop over a state's rows is bound by its loads.
HWY_INLINE T128Vec t128_in_register(T128Vec x) {
#if HWY_ARCH_X86 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
  asm("" : "+x"(x.raw));
#endif
  return x;
}

HWY_INLINE T128Vec t128_load_vector(const float* from) { return hn::LoadU(T128Tag(), from); }
HWY_INLINE T128Vec t128_load_vector(const bf16* from) { return load_bf16(T128Tag(), from); }

/// A 4 x 4 transposition within each 128-bit block; its own inverse.
HWY_INLINE T128Elements t128_transpose(const T128Elements& x) {
  const T128Tag d;
  const hn::Repartition<double, T128Tag> pairs;
  const auto ab01 = hn::BitCast(pairs, hn::InterleaveLower(d, x.e0, x.e1));
  const auto ab23 = hn::BitCast(pairs, hn::InterleaveUpper(d, x.e0, x.e1));
  const auto ce01 = hn::BitCast(pairs, hn::InterleaveLower(d, x.e2, x.e3));
  const auto ce23 = hn::BitCast(pairs, hn::InterleaveUpper(d, x.e2, x.e3));
  return {hn::BitCast(d, hn::InterleaveLower(pairs, ab01, ce01)),
          hn::BitCast(d, hn::InterleaveUpper(pairs, ab01, ce01)),
          hn::BitCast(d, hn::InterleaveLower(pairs, ab23, ce23)),
          hn::BitCast(d, hn::InterleaveUpper(pairs, ab23, ce23))};
}

/// Where the `index`-th (< kT128Vectors) elements of 128 begin: four vectors, 8 elements apart.
HWY_INLINE std::size_t t128_offset(std::size_t index) {
  const std::size_t lanes = hn::Lanes(T128Tag());
  return index * lanes / 8 * 32 + index * lanes % 8;
}

/// The `index`-th elements of 128 at `from`.
template <class T>
HWY_INLINE T128Elements t128_load(const T* from, std::size_t index) {
  from += t128_offset(index);
  return t128_transpose({t128_in_register(t128_load_vector(from)),
                         t128_in_register(t128_load_vector(from + 8)),
                         t128_in_register(t128_load_vector(from + 16)),
                         t128_in_register(t128_load_vector(from + 24))});
}

HWY_INLINE void t128_store_vector(T128Vec x, float* to) { hn::StoreU(x, T128Tag(), to); }
HWY_INLINE void t128_store_vector(T128Vec x, bf16* to) { store_bf16(T128Tag(), x, to); }

/// Puts them back in their natural order.
template <class T>
HWY_INLINE void t128_store(const T128Elements& x, std::size_t index, T* to) {
  const T128Elements natural = t128_transpose(x);
  to += t128_offset(index);
  t128_store_vector(natural.e0, to);
  t128_store_vector(natural.e1, to + 8);
  t128_store_vector(natural.e2, to + 16);
  t128_store_vector(natural.e3, to + 24);
}

/// The same of 128 elements that `t128_split` has transposed.
HWY_INLINE T128Elements t128_load_split(const float* split, std::size_t index) {
  const T128Tag d;
  const std::size_t lanes = hn::Lanes(d);
  split += index * 4 * lanes;
  return {hn::LoadU(d, split), hn::LoadU(d, split + lanes), hn::LoadU(d, split + 2 * lanes),
          hn::LoadU(d, split + 3 * lanes)};
}

HWY_INLINE void t128_store_split(const T128Elements& x, std::size_t index, float* split) {
  const T128Tag d;
  const std::size_t lanes = hn::Lanes(d);
  split += index * 4 * lanes;
  hn::StoreU(x.e0, d, split);
  hn::StoreU(x.e1, d, split + lanes);
  hn::StoreU(x.e2, d, split + 2 * lanes);
  hn::StoreU(x.e3, d, split + 3 * lanes);
}

/// Transposes 128 elements once, for use against many rows.
HWY_INLINE void t128_split(const float* from, float* split) {
  for (std::size_t i = 0; i < kT128Vectors; ++i) t128_store_split(t128_load(from, i), i, split);
}

/// x y + z.
HWY_INLINE T128Elements t128_mul_add(const T128Elements& x, T128Vec y, const T128Elements& z) {
  return {hn::MulAdd(x.e0, y, z.e0), hn::MulAdd(x.e1, y, z.e1), hn::MulAdd(x.e2, y, z.e2),
          hn::MulAdd(x.e3, y, z.e3)};
}

/// Step 1: one group sum per lane.
HWY_INLINE T128Vec t128_group_sums(const T128Elements& x, const T128Elements& y) {
  auto p = hn::Mul(x.e0, y.e0);
  p = hn::MulAdd(x.e1, y.e1, p);
  p = hn::MulAdd(x.e2, y.e2, p);
  return hn::MulAdd(x.e3, y.e3, p);
}

/// Sums of lanes at distance 1 (or 2), in each quad: of `a` in the lanes whose bit 0 (or 1) is
/// clear, of `b` in the others. Two levels of joins thus leave the sum over vector i in lane i.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V t128_join1(D /*d*/, V a, V b) {
  return hn::Add(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V t128_join2(D d, V a, V b) {
  const hn::Repartition<double, D> pairs;
  const auto a2 = hn::BitCast(pairs, a);
  const auto b2 = hn::BitCast(pairs, b);
  return hn::Add(hn::BitCast(d, hn::OddEven(b2, a2)),
                 hn::Shuffle1032(hn::BitCast(d, hn::OddEven(a2, b2))));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V t128_join(D d, V a, V b, V c, V e) {
  return t128_join2(d, t128_join1(d, a, b), t128_join1(d, c, e));
}

/// The tree's first level: even groups plus odd groups, of the group sums of 32 elements.
template <class D>
HWY_INLINE T128QuadVec t128_level1(D d, const hn::Vec<D>* sums) {
  if constexpr (hn::MaxLanes(d) == 8)
    return hn::Add(hn::LowerHalf(T128Quad(), sums[0]), hn::UpperHalf(T128Quad(), sums[0]));
  else
    return hn::Add(sums[0], sums[1]);
}

/// Two dot products on their way up the tree together. On 8 lanes one stands in the lower quad and
/// the other in the upper one, so that a join serves both; on 4 lanes each has a vector.
struct T128Two {
  T128Vec v[8 / hn::MaxLanes(T128Tag())];
};

/// Vectors of group sums in a block of 32 elements.
inline constexpr std::size_t kT128BlockVectors = kT128Vectors / 4;

/// Level 1, of the group sums of 32 elements.
template <class Two = T128Two, std::size_t kVectors>
HWY_INLINE Two t128_level1_of_two(const T128Vec (&x)[kVectors], const T128Vec (&y)[kVectors]) {
  Two two;
  if constexpr (kVectors == 1) {
    const T128Tag d;
    two.v[0] = hn::Add(hn::ConcatUpperLower(d, y[0], x[0]), hn::ConcatLowerUpper(d, y[0], x[0]));
  } else {
    two.v[0] = hn::Add(x[0], x[1]);
    two.v[1] = hn::Add(y[0], y[1]);
  }
  return two;
}

/// Two levels over four: levels 2 and 3 of a row's four blocks, then levels 4 and 5 of four rows.
/// The sum over x[i] lands in lane i of its quad.
HWY_INLINE T128Two t128_join_of_two(const T128Two (&x)[4]) {
  T128Two sums;
  for (std::size_t i = 0; i < std::size(sums.v); ++i)
    sums.v[i] = t128_join(T128Tag(), x[0].v[i], x[1].v[i], x[2].v[i], x[3].v[i]);
  return sums;
}

template <class Two>
HWY_INLINE T128QuadVec t128_first(const Two& two) {
  if constexpr (sizeof(two.v) == sizeof(two.v[0]))
    return hn::LowerHalf(T128Quad(), two.v[0]);
  else
    return two.v[0];
}
template <class Two>
HWY_INLINE T128QuadVec t128_second(const Two& two) {
  if constexpr (sizeof(two.v) == sizeof(two.v[0]))
    return hn::UpperHalf(T128Quad(), two.v[0]);
  else
    return two.v[1];
}

/// One dot product of two vectors in their natural order.
HWY_INLINE float t128_dot(const float* x, const float* y) {
  constexpr std::size_t kStep = kT128BlockVectors;
  const T128Tag d;
  const T128Quad quad;
  T128Vec sums[kT128Vectors];
  for (std::size_t i = 0; i < kT128Vectors; ++i)
    sums[i] = t128_group_sums(t128_load(x, i), t128_load(y, i));
  const auto blocks = t128_join(quad, t128_level1(d, sums), t128_level1(d, sums + kStep),
                                t128_level1(d, sums + 2 * kStep), t128_level1(d, sums + 3 * kStep));
  return hn::GetLane(t128_join(quad, blocks, blocks, blocks, blocks));
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
