// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/divider.h"
#include "cuda/common/group_quant.cuh"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"

/// Two kernels without shared memory. The first gives each lane eight neighbouring values of one
/// row and each group group_size / 8 lanes of one warp; the second gives a warp to each group and
/// moves one value at a time.
namespace k3::cuda {

inline constexpr int kGroupQuantThreads = 256;
inline constexpr int kGroupQuantVec = 8;

/// A block of rows and columns of the problem, small enough for 32-bit vector indices.
struct GroupQuantParams {
  const void* input;  ///< [rows, columns]
  std::int64_t input_stride;
  std::uint8_t* output_q;  ///< [rows, columns]
  std::int64_t q_stride;
  ScaleRows scales;           ///< of these rows and columns
  std::uint32_t row_vectors;  ///< columns / 8
  std::uint32_t num_vectors;  ///< rows * row_vectors, below 2^31
  Divider by_row_vectors;
  std::uint32_t lanes;  ///< of a group: 2, 4, 8, 16 or 32
  std::uint32_t lanes_log2;
};

__device__ inline void load_vector(const bf16* from, float (&x)[kGroupQuantVec]) {
  const uint4 words = *reinterpret_cast<const uint4*>(from);
  x[0] = low_half(words.x), x[1] = high_half(words.x);
  x[2] = low_half(words.y), x[3] = high_half(words.y);
  x[4] = low_half(words.z), x[5] = high_half(words.z);
  x[6] = low_half(words.w), x[7] = high_half(words.w);
}

__device__ inline void load_vector(const float* from, float (&x)[kGroupQuantVec]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

/// Groups never straddle warps: a row is a whole number of groups, and a warp as well.
template <class T, QuantFormat kFormat>
__global__ __launch_bounds__(kGroupQuantThreads) void group_quant_vec8_kernel(
    const __grid_constant__ GroupQuantParams p) {
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * kGroupQuantThreads + threadIdx.x;
  if (index >= p.num_vectors) return;
  const std::uint32_t row = p.by_row_vectors.quotient(index);
  const std::uint32_t vector = index - row * p.row_vectors;
  const std::int64_t column = static_cast<std::int64_t>(vector) * kGroupQuantVec;

  pdl_wait();
  float x[kGroupQuantVec];
  load_vector(static_cast<const T*>(p.input) + row * p.input_stride + column, x);
  const float amax = warp::max(largest_magnitude(x), static_cast<int>(p.lanes));
  const GroupScale scale = group_scale<kFormat>(amax);
  const uint2 codes = {quantise_quad<kFormat>(x[0], x[1], x[2], x[3], scale.multiplier),
                       quantise_quad<kFormat>(x[4], x[5], x[6], x[7], scale.multiplier)};
  __stcs(reinterpret_cast<uint2*>(p.output_q + row * p.q_stride + column), codes);
  if ((vector & (p.lanes - 1)) == 0) store_scale(p.scales, row, vector >> p.lanes_log2, scale);
}

__device__ inline float widened(bf16 x) { return low_half(x.bits); }
__device__ inline float widened(float x) { return x; }

template <class T, QuantFormat kFormat>
__global__ __launch_bounds__(kGroupQuantThreads) void group_quant_general_kernel(
    const __grid_constant__ PerTokenGroupQuantProblem p) {
  constexpr int kMaxPerLane = 256 / 32;
  pdl_launch_dependents();
  const std::int64_t num_warps = static_cast<std::int64_t>(gridDim.x) * (kGroupQuantThreads / 32);
  const std::int64_t num_groups = p.T * p.scales.num_groups;
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::int64_t group =
      static_cast<std::int64_t>(blockIdx.x) * (kGroupQuantThreads / 32) + threadIdx.x / 32;
  pdl_wait();
  for (; group < num_groups; group += num_warps) {
    const std::int64_t row = group / p.scales.num_groups;
    const std::int64_t g = group - row * p.scales.num_groups;
    const T* const from = static_cast<const T*>(p.input) + row * p.input_stride + g * p.group_size;
    std::uint8_t* const to = p.output_q + row * p.q_stride + g * p.group_size;
    float x[kMaxPerLane] = {};
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i)
      if (lane + 32 * i < p.group_size) x[i] = widened(from[lane + 32 * i]);
    const GroupScale scale = group_scale<kFormat>(warp::max(largest_magnitude(x)));
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i)
      if (lane + 32 * i < p.group_size)
        to[lane + 32 * i] = static_cast<std::uint8_t>(
            quantise_quad<kFormat>(x[i], 0.0F, 0.0F, 0.0F, scale.multiplier));
    if (lane == 0) store_scale(p.scales, row, g, scale);
  }
}

}  // namespace k3::cuda
