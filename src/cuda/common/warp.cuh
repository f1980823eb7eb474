// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

/// What the 32 lanes of a warp do together. Every lane calls, converged.
namespace k3::cuda::warp {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// True in exactly one lane.
__device__ inline bool elect() {
  std::uint32_t elected = 0;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}

/// The sum (the maximum) over each group of kLanes neighbouring lanes, in all of them. Sums join
/// neighbours first, so the order is fixed. NaN is ignored by `max`, as by fmaxf.
template <int kLanes = 32, class T>
__device__ T sum(T x) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
    x += __shfl_xor_sync(kAllLanes, x, distance);
  return x;
}
template <int kLanes = 32>
__device__ float max(float x) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

/// The maximum over groups of `lanes` neighbours, a power of two that all lanes agree on.
__device__ inline float max(float x, int lanes) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2)
    if (distance < lanes) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

/// Which of kCount values `scatter_sums` leaves in a lane; -1 in lanes that it leaves none.
template <int kCount>
__device__ int scattered_index(unsigned lane) {
  int index = 0;
  int left = kCount;
  int count = kCount;
  for (unsigned distance = 16; distance > 0; distance /= 2) {
    const int half = (count + 1) / 2;
    const bool upper = (lane & distance) != 0;
    index += upper ? half : 0;
    left = upper ? left - half : (left < half ? left : half);
    count = half;
  }
  return left > 0 ? index : -1;
}

/// The sums over all lanes of kCount <= 32 values, each in the lane that `scattered_index` says.
/// Half of the values a lane still has go to a partner each time: 20 shuffles for 18 values, not
/// 90. The order is fixed.
template <int kCount, unsigned kDistance = 16>
__device__ float scatter_sums(const float (&x)[kCount], unsigned lane) {
  constexpr int kHalf = (kCount + 1) / 2;
  const bool upper = (lane & kDistance) != 0;
  float kept[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float low = x[i];
    const float high = i + kHalf < kCount ? x[i + kHalf] : 0.0F;
    kept[i] = (upper ? high : low) + __shfl_xor_sync(kAllLanes, upper ? low : high, kDistance);
  }
  if constexpr (kDistance == 1)
    return kept[0];
  else
    return scatter_sums<kHalf, kDistance / 2>(kept, lane);
}

/// The sum over this lane and those below it.
template <class T>
__device__ T inclusive_sum(T x, unsigned lane) {
#pragma unroll
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const T below = __shfl_up_sync(kAllLanes, x, distance);
    if (lane >= distance) x += below;
  }
  return x;
}

namespace detail {
template <class Unit, int kBytes>
__device__ void copy(const void* from, void* to, unsigned lane) {
  constexpr int kUnits = kBytes / static_cast<int>(sizeof(Unit));
  constexpr int kRounds = (kUnits + 31) / 32;
  Unit held[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i)
    if (32 * i + lane < kUnits) held[i] = static_cast<const Unit*>(from)[32 * i + lane];
#pragma unroll
  for (int i = 0; i < kRounds; ++i)
    if (32 * i + lane < kUnits) static_cast<Unit*>(to)[32 * i + lane] = held[i];
}
}  // namespace detail

/// Copies kBytes, a multiple of 4, between any two address spaces, through registers: all loads
/// before the first store. Units of 16 bytes where kBytes is a multiple of 512, of 8 where of 256,
/// else of 4; both pointers are aligned to the unit.
template <int kBytes>
__device__ void copy_bytes(const void* from, void* to, unsigned lane) {
  static_assert(kBytes > 0 && kBytes % 4 == 0);
  if constexpr (kBytes % 512 == 0)
    detail::copy<uint4, kBytes>(from, to, lane);
  else if constexpr (kBytes % 256 == 0)
    detail::copy<uint2, kBytes>(from, to, lane);
  else
    detail::copy<std::uint32_t, kBytes>(from, to, lane);
}

}  // namespace k3::cuda::warp
