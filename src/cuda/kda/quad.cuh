// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/float4.cuh"
#include "cuda/common/prefetch.cuh"

/// Four consecutive elements, the unit in which the KDA kernels move memory: one T128 group.
namespace k3::cuda {

/// Four bf16 values as they lie in memory, the first in the low half of `x`.
struct alignas(8) Bf16Quad {
  std::uint32_t x;
  std::uint32_t y;
};

__device__ inline float4 widen(Bf16Quad q) {
  return {__uint_as_float(q.x << 16), __uint_as_float(q.x & 0xFFFF0000U),
          __uint_as_float(q.y << 16), __uint_as_float(q.y & 0xFFFF0000U)};
}

/// Round to nearest even.
__device__ inline Bf16Quad narrow(float4 v) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y);
  const __nv_bfloat162 high = __floats2bfloat162_rn(v.z, v.w);
  return {reinterpret_cast<const std::uint32_t&>(low),
          reinterpret_cast<const std::uint32_t&>(high)};
}

__device__ inline bf16 narrow(float x) {
  const __nv_bfloat16 rounded = __float2bfloat16_rn(x);
  return reinterpret_cast<const bf16&>(rounded);
}
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float(std::uint32_t{x.bits} << 16); }
__device__ inline float round_to_bf16(float x) { return widen(narrow(x)); }
__device__ inline float4 round_to_bf16(float4 v) { return widen(narrow(v)); }

/// How global memory is accessed. Stores go through intrinsics even without a hint: the compiler is
/// free to split an assignment of a float4 into four stores, and does.
/// @tparam kVector     one access a quad (needs its alignment); else one an element
/// @tparam kStreaming  the line is not used again soon: evict it first
template <bool kVector_, bool kStreaming_ = false>
struct QuadAccess {
  static constexpr bool kVector = kVector_;
  static constexpr bool kStreaming = kStreaming_;

  __device__ static float4 load(const float* from) {
    if constexpr (!kVector) return {from[0], from[1], from[2], from[3]};
    const auto* const at = reinterpret_cast<const float4*>(from);
    return kStreaming ? __ldcs(at) : *at;
  }
  __device__ static Bf16Quad load(const bf16* from) {
    if constexpr (!kVector)
      return {from[0].bits | std::uint32_t{from[1].bits} << 16,
              from[2].bits | std::uint32_t{from[3].bits} << 16};
    const auto* const at = reinterpret_cast<const uint2*>(from);
    const uint2 raw = kStreaming ? __ldcs(at) : *at;
    return {raw.x, raw.y};
  }
  __device__ static void store(float* to, float4 v) {
    if constexpr (kVector) {
      auto* const at = reinterpret_cast<float4*>(to);
      if constexpr (kStreaming)
        __stcs(at, v);
      else
        __stwb(at, v);
    } else {
      to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
  }
  __device__ static void store(bf16* to, Bf16Quad v) {
    if constexpr (kVector) {
      auto* const at = reinterpret_cast<uint2*>(to);
      if constexpr (kStreaming)
        __stcs(at, uint2{v.x, v.y});
      else
        __stwb(at, uint2{v.x, v.y});
    } else {
      to[0].bits = static_cast<std::uint16_t>(v.x),
      to[1].bits = static_cast<std::uint16_t>(v.x >> 16);
      to[2].bits = static_cast<std::uint16_t>(v.y),
      to[3].bits = static_cast<std::uint16_t>(v.y >> 16);
    }
  }
};

/// Quads in shared memory; the intrinsics of QuadAccess mean global memory.
struct SharedQuadAccess {
  __device__ static float4 load(const float* from) {
    return *reinterpret_cast<const float4*>(from);
  }
  __device__ static Bf16Quad load(const bf16* from) {
    const uint2 raw = *reinterpret_cast<const uint2*>(from);
    return {raw.x, raw.y};
  }
  __device__ static void store(float* to, float4 v) { *reinterpret_cast<float4*>(to) = v; }
  __device__ static void store(bf16* to, Bf16Quad v) {
    *reinterpret_cast<uint2*>(to) = uint2{v.x, v.y};
  }
};

/// Loads that only ask for the memory: for addresses that a QuadAccess will load later.
struct QuadPrefetch {
  __device__ static float4 load(const float* from) {
    prefetch_l2(from);
    return {};
  }
  __device__ static Bf16Quad load(const bf16* from) {
    prefetch_l2(from);
    return {};
  }
};

/// A quad of a state, as it stands in memory: one type of register for each dtype.
template <class StateT>
struct StateQuad;
template <>
struct StateQuad<float> {
  using Type = float4;
  __device__ static float4 widen(float4 q) { return q; }
  __device__ static float4 narrow(float4 q) { return q; }
};
template <>
struct StateQuad<bf16> {
  using Type = Bf16Quad;
  __device__ static float4 widen(Bf16Quad q) { return cuda::widen(q); }
  __device__ static Bf16Quad narrow(float4 q) { return cuda::narrow(q); }
};

}  // namespace k3::cuda
