// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/situ_mul_quant.h"
#include "cuda/common/group_quant.cuh"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/situ_and_mul/activation.cuh"

/// live_rows: every CTA counts the live rows of all experts in shared memory, takes an equal share
/// of them, and walks it row by row. A lane makes eight outputs of a row, 16 lanes a group; lanes
/// never exchange more than their group's maximum. Short rows stand side by side in a CTA, long
/// ones take several passes.
///
/// warp_per_group: one value an access, for whatever the first refuses.
namespace k3::cuda {

inline constexpr int kSituQuantMaxThreads = 512;
inline constexpr int kSituQuantMaxExperts = 8192;
inline constexpr int kSituQuantVec = 8;

/// Strides in elements, 32 bits each: products with row numbers are single instructions then.
struct SituQuantParams {
  const bf16* input;
  std::uint8_t* output_q;
  ScaleRows scales;              ///< of expert 0; the strides below take the place of its own
  const std::int32_t* masked_m;  ///< null: one expert whose rows are all live
  std::int64_t masked_stride;
  std::uint32_t input_expert, input_row;
  std::uint32_t q_expert, q_row;
  std::uint32_t scale_expert, scale_row;
  std::uint32_t up_offset;  ///< from eight values of gate to those of up
  int gate_step;            ///< from eight values of gate to the next eight
  int E;
  int Tp;
  int row_vectors;   ///< N / 8, a multiple of 16
  int rows_at_once;  ///< of a CTA; 1 where a row takes more than one pass
  bool round_to_bf16;
  SituCaps caps;
};

__device__ inline int live_rows_of(const std::int32_t* masked_m, std::int64_t at, int Tp) {
  return min(max(masked_m[at], 0), Tp);
}

/// first_row[e] = live rows before expert e, for e up to E. The whole CTA calls; it may read the
/// list when the function returns.
__device__ inline void count_live_rows(const SituQuantParams& p, std::int32_t* first_row) {
  __shared__ std::int32_t warp_totals[kSituQuantMaxThreads / 32];
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int experts_each = (p.E + threads - 1) / threads;
  const int begin = min(thread * experts_each, p.E);
  const int end = min(begin + experts_each, p.E);
  int own = 0;
  for (int e = begin; e < end; ++e) own += live_rows_of(p.masked_m, e * p.masked_stride, p.Tp);

  int up_to_here = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(warp::kAllLanes, up_to_here, distance);
    if (thread % 32 >= distance) up_to_here += before;
  }
  if (thread % 32 == 31) warp_totals[thread / 32] = up_to_here;
  __syncthreads();  // the totals of all warps are there
  int at = up_to_here - own;
  for (int warp = 0; warp < thread / 32; ++warp) at += warp_totals[warp];
  for (int e = begin; e < end; ++e) {
    first_row[e] = at;
    at += live_rows_of(p.masked_m, e * p.masked_stride, p.Tp);
  }
  if (thread == threads - 1) first_row[p.E] = at;
  __syncthreads();  // first_row is complete
}

/// The expert that a live row belongs to.
__device__ inline int expert_of(const std::int32_t* first_row, int E, int row) {
  int low = 0;
  int high = E;  // first_row[low] <= row < first_row[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first_row[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <bool kBounded>
__device__ float situ_value(float g, float u, const SituQuantParams& p) {
  if constexpr (kBounded)
    return situ_bounded(g, u, p.caps);
  else
    return situ<false, true>(g, u, p.caps);
}

/// Eight outputs of a lane; the 16 lanes of its half of the warp hold one group.
template <bool kBounded, QuantFormat kFormat>
__device__ void quantise_eight(const SituQuantParams& p, const bf16* gate_at,
                               std::uint8_t* codes_at, const ScaleRows& scales, unsigned group,
                               unsigned lane) {
  const uint4 gates = *reinterpret_cast<const uint4*>(gate_at);
  const uint4 ups = *reinterpret_cast<const uint4*>(gate_at + p.up_offset);
  const std::uint32_t g[4] = {gates.x, gates.y, gates.z, gates.w};
  const std::uint32_t u[4] = {ups.x, ups.y, ups.z, ups.w};
  float v[kSituQuantVec];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = situ_value<kBounded>(low_half(g[i]), low_half(u[i]), p);
    v[2 * i + 1] = situ_value<kBounded>(high_half(g[i]), high_half(u[i]), p);
  }
  if (p.round_to_bf16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t pair = pack_bf16(v[2 * i], v[2 * i + 1]);
      v[2 * i] = low_half(pair);
      v[2 * i + 1] = high_half(pair);
    }
  }
  // The other half of the warp may have left the loop already.
  const unsigned half = 0xFFFFU << (lane & 16U);
  float amax = largest_magnitude(v);
#pragma unroll
  for (int distance = 1; distance < 16; distance *= 2)
    amax = fmaxf(amax, __shfl_xor_sync(half, amax, distance));
  const GroupScale scale = group_scale<kFormat>(amax);
  const uint2 codes = {quantise_quad<kFormat>(v[0], v[1], v[2], v[3], scale.multiplier),
                       quantise_quad<kFormat>(v[4], v[5], v[6], v[7], scale.multiplier)};
  __stcs(reinterpret_cast<uint2*>(codes_at), codes);
  if (lane % 16 == 0) store_scale(scales, 0, group, scale);
}

template <bool kBounded, QuantFormat kFormat>
__global__ __launch_bounds__(kSituQuantMaxThreads) void situ_mul_quant_live_rows_kernel(
    const __grid_constant__ SituQuantParams p) {
  extern __shared__ std::int32_t first_row[];
  pdl_launch_dependents();
  const int thread = static_cast<int>(threadIdx.x);
  const int own_row = p.rows_at_once > 1 ? thread / p.row_vectors : 0;
  const int own_vector = thread - own_row * p.row_vectors;
  const int vector_step = p.rows_at_once > 1 ? p.row_vectors : static_cast<int>(blockDim.x);

  pdl_wait();
  int live = p.Tp;
  if (p.masked_m != nullptr) {
    count_live_rows(p, first_row);
    live = first_row[p.E];
  }
  const auto share_begin = [&](unsigned cta) {
    return static_cast<int>(static_cast<std::int64_t>(live) * cta / gridDim.x);
  };
  const int end = share_begin(blockIdx.x + 1);
  int row = share_begin(blockIdx.x) + own_row;
  if (own_row >= p.rows_at_once || row >= end) return;  // whole halves of warps
  int expert = p.masked_m != nullptr ? expert_of(first_row, p.E, row) : 0;
  for (; row < end; row += p.rows_at_once) {
    auto t = static_cast<std::uint32_t>(row);
    if (p.masked_m != nullptr) {
      while (row >= first_row[expert + 1]) ++expert;
      t -= static_cast<std::uint32_t>(first_row[expert]);
    }
    const auto e = static_cast<std::uint32_t>(expert);
    const auto offset = [&](std::uint32_t expert_stride, std::uint32_t row_stride) {
      return std::uint64_t{e} * expert_stride + std::uint64_t{t} * row_stride;
    };
    const bf16* const input = p.input + offset(p.input_expert, p.input_row);
    std::uint8_t* const codes = p.output_q + offset(p.q_expert, p.q_row);
    ScaleRows scales = p.scales;
    scales.data = static_cast<float*>(scales.data) + offset(p.scale_expert, p.scale_row);
    for (int vector = own_vector; vector < p.row_vectors; vector += vector_step)
      quantise_eight<kBounded, kFormat>(p, input + std::int64_t{vector} * p.gate_step,
                                        codes + std::int64_t{vector} * kSituQuantVec, scales,
                                        static_cast<unsigned>(vector) / 16U, thread % 32U);
  }
}

template <QuantFormat kFormat>
__global__ __launch_bounds__(256) void situ_mul_quant_warp_per_group_kernel(
    const __grid_constant__ SituMulQuantProblem p, const __grid_constant__ SituCaps caps) {
  constexpr int kPerLane = kSituGroup / 32;
  pdl_launch_dependents();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t num_rows = p.E * p.Tp;
  pdl_wait();
  for (std::int64_t row = blockIdx.x; row < num_rows; row += gridDim.x) {
    const std::int64_t e = row / p.Tp;
    const std::int64_t t = row - e * p.Tp;
    if (p.masked_m.data != nullptr && t >= p.masked_m.data[e * p.masked_m.stride]) continue;
    const bf16* const input = p.input + e * p.input_expert_stride + t * p.input_row_stride;
    std::uint8_t* const codes = p.output_q + e * p.q_expert_stride + t * p.q_row_stride;
    ScaleRows scales = p.scales;
    scales.data = static_cast<float*>(scales.data) + e * p.scale_expert_stride;
    for (std::int64_t g = warp; g < scales.num_groups; g += 256 / 32) {
      float v[kPerLane];
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const std::int64_t column = g * kSituGroup + 32 * i + lane;
        const std::int64_t gate = p.swizzle ? column / 8 * 16 + column % 8 : column;
        const std::int64_t up = p.swizzle ? gate + 8 : p.N + column;
        v[i] = situ<false, true>(low_half(input[gate].bits), low_half(input[up].bits), caps);
        if (p.round_to_bf16) v[i] = low_half(pack_bf16(v[i], 0.0F));
      }
      const GroupScale scale = group_scale<kFormat>(warp::max(largest_magnitude(v)));
#pragma unroll
      for (int i = 0; i < kPerLane; ++i)
        codes[g * kSituGroup + 32 * i + lane] = static_cast<std::uint8_t>(
            quantise_quad<kFormat>(v[i], 0.0F, 0.0F, 0.0F, scale.multiplier));
      if (lane == 0) store_scale(scales, t, static_cast<std::uint64_t>(g), scale);
    }
  }
}

}  // namespace k3::cuda
