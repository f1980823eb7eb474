// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "cuda/common/warp.cuh"

/// T128 on the device: the one order of summation of 128 elements (the CPU's twin is
/// cpu/t128-inl.h).
///
///   1. 32 groups of 4 consecutive elements: p = x0*y0, then p = fma(x1, y1, p), x2*y2, x3*y3.
///   2. A balanced binary tree that joins adjacent groups first: distances 1, 2, 4, 8, 16, as
///      warp::sum does.
///
/// A layout that gives a lane 1, 2, 4, ... adjacent groups does the first levels in the lane and
/// the others by shuffles between neighbours. Addition commutes, so it does not matter which of two
/// lanes is "own", and every layout gives the same bits.
namespace k3::cuda {

/// One group.
__device__ inline float t128_group(float4 x, float4 y) {
  return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, x.x * y.x)));
}

/// kN sums over kLanes neighbouring lanes at once; sum i lands in the lanes with lane % kN == i.
/// Each of the first levels halves the number of sums a lane still carries, so this takes about
/// 2 kN shuffles less than one sum after the other.
template <int kLanes, int kN>
__device__ float t128_scatter(float (&x)[kN], unsigned lane) {
  static_assert(kN >= 1 && kN <= kLanes && (kN & (kN - 1)) == 0);
  int distance = 1;
#pragma unroll
  for (int sums = kN; sums > 1; sums /= 2, distance *= 2) {
    const bool odd = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < sums / 2; ++i) {
      const float keep = odd ? x[2 * i + 1] : x[2 * i];
      const float send = odd ? x[2 * i] : x[2 * i + 1];
      x[i] = keep + __shfl_xor_sync(warp::kAllLanes, send, distance);
    }
  }
  float sum = x[0];
#pragma unroll
  for (; distance < kLanes; distance *= 2) sum += __shfl_xor_sync(warp::kAllLanes, sum, distance);
  return sum;
}

}  // namespace k3::cuda
