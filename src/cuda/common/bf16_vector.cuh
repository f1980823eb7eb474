// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/packed_bf16.cuh"

namespace k3::cuda {

/// kVec values that are loaded and stored at once, at addresses of a multiple of their size.
template <int kVec>
struct alignas(sizeof(bf16) * kVec) Bf16Vector {
  static_assert(kVec == 2 || kVec == 4 || kVec == 8);
  std::uint32_t pairs[kVec / 2];
};
template <>
struct Bf16Vector<1> {
  std::uint16_t bits;
};

template <int kVec>
__device__ Bf16Vector<kVec> load_vector(const bf16* from) {
  return *reinterpret_cast<const Bf16Vector<kVec>*>(from);
}

/// Eight values, past the L1. As no load through the read-only path does, it stays where it stands
/// among the kernel's waits: ahead of pdl_wait, say, for what no kernel writes.
__device__ inline uint4 load_past_l1(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

template <int kVec>
__device__ void store_vector(bf16* to, const Bf16Vector<kVec>& vector) {
  *reinterpret_cast<Bf16Vector<kVec>*>(to) = vector;
}

/// The same, and the line is the first to leave the L2.
template <int kVec>
__device__ void store_streaming(bf16* to, const Bf16Vector<kVec>& vector) {
  if constexpr (kVec == 1)
    __stcs(reinterpret_cast<unsigned short*>(to), vector.bits);
  else if constexpr (kVec == 2)
    __stcs(reinterpret_cast<unsigned*>(to), vector.pairs[0]);
  else if constexpr (kVec == 4)
    __stcs(reinterpret_cast<uint2*>(to), make_uint2(vector.pairs[0], vector.pairs[1]));
  else
    __stcs(reinterpret_cast<uint4*>(to),
           make_uint4(vector.pairs[0], vector.pairs[1], vector.pairs[2], vector.pairs[3]));
}

template <int kVec>
__device__ void unpack(const Bf16Vector<kVec>& vector, float (&to)[kVec]) {
  if constexpr (kVec == 1) {
    to[0] = low_half(vector.bits);
  } else {
#pragma unroll
    for (int i = 0; i < kVec; i += 2) {
      to[i] = low_half(vector.pairs[i / 2]);
      to[i + 1] = high_half(vector.pairs[i / 2]);
    }
  }
}

/// fn of each pair of bf16, as the words they lie in; a single value is the low half of its word.
template <int kVec, class Fn>
__device__ Bf16Vector<kVec> map_pairs(const Bf16Vector<kVec>& a, const Bf16Vector<kVec>& b,
                                      const Fn& fn) {
  Bf16Vector<kVec> result;
  if constexpr (kVec == 1) {
    result.bits = static_cast<std::uint16_t>(fn(a.bits, b.bits));
  } else {
#pragma unroll
    for (int i = 0; i < kVec / 2; ++i) result.pairs[i] = fn(a.pairs[i], b.pairs[i]);
  }
  return result;
}

/// Rounded to nearest even.
template <int kVec>
__device__ Bf16Vector<kVec> pack(const float (&from)[kVec]) {
  Bf16Vector<kVec> vector;
  if constexpr (kVec == 1) {
    vector.bits = static_cast<std::uint16_t>(pack_bf16(from[0], 0.0F));
  } else {
#pragma unroll
    for (int i = 0; i < kVec; i += 2) vector.pairs[i / 2] = pack_bf16(from[i], from[i + 1]);
  }
  return vector;
}

}  // namespace k3::cuda
