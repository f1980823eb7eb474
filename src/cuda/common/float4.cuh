// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

/// Arithmetic of four values side by side, one rounding each.
namespace k3::cuda {

__device__ inline float4 operator*(float4 a, float4 b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ inline float4 operator*(float4 a, float b) {
  return {a.x * b, a.y * b, a.z * b, a.w * b};
}
__device__ inline float4 operator+(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ inline float4 fma(float4 a, float4 b, float4 c) {
  return {fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w)};
}
__device__ inline float4 fma(float4 a, float b, float4 c) {
  return {fmaf(a.x, b, c.x), fmaf(a.y, b, c.y), fmaf(a.z, b, c.z), fmaf(a.w, b, c.w)};
}
template <class Fn>
__device__ float4 map(float4 v, const Fn& fn) {
  return {fn(v.x), fn(v.y), fn(v.z), fn(v.w)};
}

}  // namespace k3::cuda
