// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

/// bf16 pairs in a word: the low half is first in memory.
namespace k3::cuda {

__device__ inline float low_half(std::uint32_t word) { return __uint_as_float(word << 16); }
__device__ inline float high_half(std::uint32_t word) {
  return __uint_as_float(word & 0xFFFF0000U);
}

__device__ inline float2 unpack_bf16(std::uint32_t word) {
  return {low_half(word), high_half(word)};
}

/// Two values rounded to nearest even, NaN kept.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

}  // namespace k3::cuda
