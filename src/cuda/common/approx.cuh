// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

/// Elementary functions as single instructions. Subnormal arguments and results count as zero.
namespace k3::cuda {

inline constexpr float kLog2E = 1.4426950408889634F;

/// 2^x, relative error 2^-22.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x, within 1 ulp.
__device__ inline float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace k3::cuda
