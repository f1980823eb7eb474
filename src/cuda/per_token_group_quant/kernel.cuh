// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/divider.h"
#include "cuda/common/group_quant.cuh"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"

/// Two kernels without shared memory. The first gives each lane 16 neighbouring values of one row
/// and each group group_size / 16 lanes of one warp; the second gives a warp to each group and
/// moves one value at a time.
namespace k3::cuda {

inline constexpr int kGroupQuantThreads = 256;
inline constexpr int kGroupQuantVec = 16;

/// A block of rows and columns of the problem, small enough for 32-bit vector indices.
struct GroupQuantParams {
  const void* input;  ///< [rows, columns]
  std::int64_t input_stride;
  std::uint8_t* output_q;  ///< [rows, columns]
  std::int64_t q_stride;
  ScaleRows scales;           ///< of these rows and columns
  std::uint32_t row_vectors;  ///< columns / 16
  std::uint32_t num_vectors;  ///< rows * row_vectors, below 2^31
  Divider by_row_vectors;
  std::uint32_t lanes;  ///< of a group: 1, 2, 4, 8 or 16
  std::uint32_t lanes_log2;
};

__device__ inline void load_vector(const bf16* from, float (&x)[kGroupQuantVec]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 words = reinterpret_cast<const uint4*>(from)[i];
    const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x[8 * i + 2 * j] = low_half(pairs[j]);
      x[8 * i + 2 * j + 1] = high_half(pairs[j]);
    }
  }
}

__device__ inline void load_vector(const float* from, float (&x)[kGroupQuantVec]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 quad = reinterpret_cast<const float4*>(from)[i];
    x[4 * i] = quad.x, x[4 * i + 1] = quad.y, x[4 * i + 2] = quad.z, x[4 * i + 3] = quad.w;
  }
}

/// Groups never straddle warps: a row is a whole number of groups, and a warp as well.
template <class T, QuantFormat kFormat>
__global__ __launch_bounds__(kGroupQuantThreads) void group_quant_vec16_kernel(
    const __grid_constant__ GroupQuantParams p) {
  pdl_launch_dependents();
  // Lanes past the end stay for the exchange of maxima, with the last vector's values.
  const std::uint32_t own_index = blockIdx.x * kGroupQuantThreads + threadIdx.x;
  const bool is_past_the_end = own_index >= p.num_vectors;
  const std::uint32_t index = is_past_the_end ? p.num_vectors - 1 : own_index;
  const std::uint32_t row = p.by_row_vectors.quotient(index);
  const std::uint32_t vector = index - row * p.row_vectors;
  const std::int64_t column = static_cast<std::int64_t>(vector) * kGroupQuantVec;

  pdl_wait();
  float x[kGroupQuantVec];
  load_vector(static_cast<const T*>(p.input) + row * p.input_stride + column, x);
  const float amax = warp::max(largest_magnitude(x), static_cast<int>(p.lanes));
  if (is_past_the_end) return;
  const GroupScale scale = group_scale<kFormat>(amax);
  __stcs(reinterpret_cast<uint4*>(p.output_q + row * p.q_stride + column),
         quantise_vector<kFormat>(x, scale.multiplier));
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
