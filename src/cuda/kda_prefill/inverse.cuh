// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

/// (I + L)^-1 of a strictly lower triangular L [64, 64] in fp32: forward substitution of the four
/// diagonal blocks of 16, then blocks of 16 and of 32 join by
///
///   [ A 0 ; B D ]^-1 = [ A^-1  0 ; -D^-1 B A^-1  D^-1 ]
///
/// No power of L is ever formed: on repeated keys with weak decay those cancel catastrophically,
/// while the entries of the inverse stay small.
namespace k3::cuda {

inline constexpr int kLowerSize = 64;
inline constexpr int kLowerPitch = 72;  ///< four rows of eight floats lie in different banks
inline constexpr int kInverseThreads = 256;

/// Lower-left blocks of kSize of the pairs at 2 kSize: `scratch` holds B A^-1 meanwhile.
template <int kSize>
__device__ void join_blocks(float (&x)[kLowerSize][kLowerPitch], float* scratch) {
  constexpr int kPairs = kLowerSize / (2 * kSize);
  constexpr int kElements = kSize * kSize;
  constexpr int kEach = kPairs * kElements / kInverseThreads;
  const int first = static_cast<int>(threadIdx.x) * kEach;
  const int pair = first / kElements;
  const int i = first % kElements / kSize;
  const int j0 = first % kSize;  // kEach neighbours of a row
  const int upper = 2 * kSize * pair;
  const int lower = upper + kSize;
  float sum[kEach] = {};
#pragma unroll 4
  for (int m = 0; m < kSize; ++m)
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      // Above the diagonal A^-1 is zero, and what stands there is something else.
      if (m >= j0 + e) sum[e] = fmaf(x[lower + i][upper + m], x[upper + m][upper + j0 + e], sum[e]);
#pragma unroll
  for (int e = 0; e < kEach; ++e) scratch[first + e] = sum[e];
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kEach; ++e) sum[e] = 0.0F;
#pragma unroll 4
  for (int m = 0; m <= i; ++m)
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      sum[e] =
          fmaf(x[lower + i][lower + m], scratch[pair * kElements + m * kSize + j0 + e], sum[e]);
#pragma unroll
  for (int e = 0; e < kEach; ++e) x[lower + i][upper + j0 + e] = -sum[e];
  __syncthreads();
}

/// In place, by all threads of a CTA of 256; of `x` only the lower triangle means something, before
/// and after. `scratch` has 1024 floats. Ends with a barrier.
__device__ inline void invert_unit_lower(float (&x)[kLowerSize][kLowerPitch], float* scratch) {
  constexpr int kBlock = 16;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kLowerSize) {
    // A thread has a column of a diagonal block; the block's 16 threads are of one warp.
    const int first = thread / kBlock * kBlock;
    const int column = thread % kBlock;
    float solution[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      float sum = i == column ? 1.0F : 0.0F;
#pragma unroll
      for (int j = 0; j < i; ++j) sum = fmaf(-x[first + i][first + j], solution[j], sum);
      solution[i] = sum;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[first + i][first + column] = solution[i];
  }
  __syncthreads();
  join_blocks<16>(x, scratch);
  join_blocks<32>(x, scratch);
}

}  // namespace k3::cuda
