// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

/// fp8 e4m3fn and power-of-two (UE8M0) scales on the device; core/fp8.h is the same on the host.
namespace k3::cuda {

/// The codes of two values, `low` in the low byte: to nearest even, saturated at +-448, NaN gives
/// 0x7F.
__device__ inline std::uint32_t e4m3_pair(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

/// Four codes in a word, the first in the lowest byte.
__device__ inline std::uint32_t e4m3_quad(float x0, float x1, float x2, float x3) {
  return e4m3_pair(x0, x1) | e4m3_pair(x2, x3) << 16;
}

/// Clamped so that NaN gives +448, never the NaN of fp8: fminf takes its other operand then.
__device__ inline float clamp_to_e4m3(float x) { return fmaxf(fminf(x, 448.0F), -448.0F); }

/// As `ue8m0_ceil` of core/fp8.h, for finite x > 0.
__device__ inline std::uint32_t ue8m0_ceil(float x) {
  return (__float_as_uint(x) + 0x7FFFFFU) >> 23;
}
/// 2^(byte - 127), for 1 <= byte <= 254.
__device__ inline float ue8m0_value(std::uint32_t byte) { return __uint_as_float(byte << 23); }
/// 2^(127 - byte), for 1 <= byte <= 253.
__device__ inline float ue8m0_reciprocal(std::uint32_t byte) {
  return __uint_as_float((254U - byte) << 23);
}

}  // namespace k3::cuda
