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

__device__ inline __nv_bfloat162 as_bf16_pair(std::uint32_t word) {
  return reinterpret_cast<const __nv_bfloat162&>(word);
}
__device__ inline std::uint32_t as_word(__nv_bfloat162 pair) {
  return reinterpret_cast<const std::uint32_t&>(pair);
}

/// Two values rounded to nearest even, NaN kept.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  return as_word(__floats2bfloat162_rn(low, high));
}

}  // namespace k3::cuda
