// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/situ_mul_quant.h"
#include "cuda/common/group_quant.cuh"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/situ_and_mul/activation.cuh"

/// live_rows: every CTA counts the live rows of all experts in shared memory, takes an equal share
/// of them, and walks it row by row. A lane makes 16 outputs of a row, 8 lanes a group; lanes never
/// exchange more than their group's maximum. Short rows stand side by side in a CTA, long ones take
/// several passes. Without masked_m a CTA takes the next rows of all; few rows are cut among CTAs
/// along y.
///
/// warp_per_group: one value an access, for whatever the first refuses.
namespace k3::cuda {

inline constexpr int kSituQuantThreads = 192;  ///< a row of 3072
inline constexpr int kSituQuantCtasPerSm = 5;
inline constexpr int kSituQuantMaxExperts = 8192;
inline constexpr int kSituQuantVec = 16;                                 ///< outputs of a lane
inline constexpr unsigned kSituQuantLanes = kSituGroup / kSituQuantVec;  ///< of a group

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
  // A lane's gates are two runs of eight, each with its ups behind it.
  std::uint32_t up_offset;   ///< from a run of gates to its ups
  std::uint32_t run_offset;  ///< from one run of gates to the next
  std::uint32_t lane_step;   ///< from one lane's first run to the next lane's
  int E;
  int Tp;
  int row_vectors;   ///< N / 16, a multiple of 8
  int rows_at_once;  ///< of a CTA; 1 where a row takes more than one pass
  bool round_to_bf16;
  SituCaps caps;
};

/// first_row[e] = live rows before expert e, for e up to E. The whole CTA calls; it may read the
/// list when the function returns. Returns first_row[E].
__device__ inline int count_live_rows(const SituQuantParams& p, std::int32_t* first_row) {
  constexpr int kWarps = kSituQuantThreads / 32;
  constexpr int kEach = 8;  // experts of a thread, loaded at once
  __shared__ std::int32_t warp_totals[2][kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  const int step = kEach * static_cast<int>(blockDim.x);
  int before = 0;  // of this round
  for (int round = 0, first = 0; first < p.E; ++round, first += step) {
    const int begin = first + kEach * thread;
    int live[kEach] = {};
    int own = 0;
    int up_to_here = 0;
    if (begin - kEach * (thread % 32) < p.E) {  // the warp has experts
      const std::int32_t* const at = p.masked_m + begin * p.masked_stride;
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (begin + i < p.E) live[i] = at[i * p.masked_stride];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        live[i] = min(max(live[i], 0), p.Tp);
        own += live[i];
      }
      up_to_here = own;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(warp::kAllLanes, up_to_here, distance);
        if (thread % 32 >= distance) up_to_here += other;
      }
    }
    // Two sets of totals: a warp may be a round ahead of one that still reads.
    std::int32_t* const totals = warp_totals[round % 2];
    if (thread % 32 == 31) totals[thread / 32] = up_to_here;
    __syncthreads();  // the totals of all warps are there
    int at = before + up_to_here - own;
    for (int warp = 0; warp < num_warps; ++warp) {
      if (warp < thread / 32) at += totals[warp];
      before += totals[warp];
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (begin + i < p.E) first_row[begin + i] = at;
      at += live[i];
    }
  }
  if (thread == 0) first_row[p.E] = before;
  __syncthreads();  // first_row is complete
  return before;
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

/// The largest magnitude; NaN where any value is.
__device__ inline float max_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

/// Over the lanes of a group. The other groups of the warp may have left their loop already.
template <class Max>
__device__ float largest_of_group(float x, unsigned lane, const Max& max) {
  const unsigned members = ((1U << kSituQuantLanes) - 1) << (lane & ~(kSituQuantLanes - 1));
#pragma unroll
  for (unsigned distance = 1; distance < kSituQuantLanes; distance *= 2)
    x = max(x, __shfl_xor_sync(members, x, distance));
  return x;
}

/// The codes of a lane, and the scale of its group.
template <QuantFormat kFormat>
__device__ GroupScale quantise_lane(const float (&v)[kSituQuantVec], unsigned lane, uint4& codes) {
  float amax = 0.0F;
#pragma unroll
  for (int i = 0; i < kSituQuantVec; ++i) amax = max_or_nan(amax, fabsf(v[i]));
  amax = largest_of_group(amax, lane, max_or_nan);
  if (isnan(amax)) {  // in all lanes of the group: NaN is left out of the scale
    amax = largest_of_group(largest_magnitude(v), lane, fmaxf);
    const GroupScale scale = group_scale<kFormat>(amax);
    codes = quantise_vector<kFormat>(v, scale.multiplier);
    return scale;
  }
  const GroupScale scale = group_scale<kFormat>(amax);
  const float m = scale.multiplier;
  codes = {e4m3_quad(v[0] * m, v[1] * m, v[2] * m, v[3] * m),
           e4m3_quad(v[4] * m, v[5] * m, v[6] * m, v[7] * m),
           e4m3_quad(v[8] * m, v[9] * m, v[10] * m, v[11] * m),
           e4m3_quad(v[12] * m, v[13] * m, v[14] * m, v[15] * m)};
  return scale;
}

/// 16 outputs of a lane from its two runs of gates and of ups.
template <bool kBounded, QuantFormat kFormat>
__device__ GroupScale quantise_situ(const SituQuantParams& p, const bf16* gates_at, unsigned lane,
                                    uint4& codes) {
  const uint4 gates[2] = {*reinterpret_cast<const uint4*>(gates_at),
                          *reinterpret_cast<const uint4*>(gates_at + p.run_offset)};
  const uint4 ups[2] = {*reinterpret_cast<const uint4*>(gates_at + p.up_offset),
                        *reinterpret_cast<const uint4*>(gates_at + p.run_offset + p.up_offset)};
  const std::uint32_t g[8] = {gates[0].x, gates[0].y, gates[0].z, gates[0].w,
                              gates[1].x, gates[1].y, gates[1].z, gates[1].w};
  const std::uint32_t u[8] = {ups[0].x, ups[0].y, ups[0].z, ups[0].w,
                              ups[1].x, ups[1].y, ups[1].z, ups[1].w};
  float v[kSituQuantVec];
  if constexpr (kBounded) {
    situ_bounded(g, u, p.caps, v);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[2 * i] = situ<false, true>(low_half(g[i]), low_half(u[i]), p.caps);
      v[2 * i + 1] = situ<false, true>(high_half(g[i]), high_half(u[i]), p.caps);
    }
  }
  if (p.round_to_bf16) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t pair = pack_bf16(v[2 * i], v[2 * i + 1]);
      v[2 * i] = low_half(pair);
      v[2 * i + 1] = high_half(pair);
    }
  }
  return quantise_lane<kFormat>(v, lane, codes);
}

template <bool kBounded, QuantFormat kFormat>
__global__
__launch_bounds__(kSituQuantThreads, kSituQuantCtasPerSm) void situ_mul_quant_live_rows_kernel(
    const __grid_constant__ SituQuantParams p) {
  extern __shared__ std::int32_t first_row[];
  pdl_launch_dependents();
  const int thread = static_cast<int>(threadIdx.x);
  const bool one_row = p.rows_at_once == 1;
  const int own_row = one_row ? 0 : thread / p.row_vectors;
  const int own_vector = one_row ? static_cast<int>(blockIdx.y * blockDim.x) + thread
                                 : thread - own_row * p.row_vectors;
  const int vector_step = one_row ? static_cast<int>(blockDim.x * gridDim.y) : p.row_vectors;
  const bool masked = p.masked_m != nullptr;

  pdl_wait();
  int begin = static_cast<int>(blockIdx.x) * p.rows_at_once;
  int end = min(begin + p.rows_at_once, p.Tp);
  if (masked) {  // shares of the live rows, which differ by at most one row
    const auto live = static_cast<unsigned>(count_live_rows(p, first_row));
    const unsigned share = live / gridDim.x;
    const unsigned longer = live - share * gridDim.x;
    begin = static_cast<int>(blockIdx.x * share + min(blockIdx.x, longer));
    end = begin + static_cast<int>(share) + (blockIdx.x < longer ? 1 : 0);
  }
  int row = begin + own_row;
  if (own_row >= p.rows_at_once || row >= end) return;  // whole groups of lanes
  int expert = masked ? expert_of(first_row, p.E, row) : 0;
  for (; row < end; row += p.rows_at_once) {
    auto t = static_cast<std::uint32_t>(row);
    if (masked) {
      while (row >= first_row[expert + 1]) ++expert;
      t -= static_cast<std::uint32_t>(first_row[expert]);
    }
    const auto e = static_cast<std::uint32_t>(expert);
    const auto offset = [&](std::uint32_t expert_stride, std::uint32_t row_stride) {
      return std::uint64_t{e} * expert_stride + std::uint64_t{t} * row_stride;
    };
    const bf16* const input = p.input + offset(p.input_expert, p.input_row);
    std::uint8_t* const output_q = p.output_q + offset(p.q_expert, p.q_row);
    ScaleRows scales = p.scales;
    scales.data = static_cast<float*>(scales.data) + offset(p.scale_expert, p.scale_row);
    for (int vector = own_vector; vector < p.row_vectors; vector += vector_step) {
      const auto lane_in_row = static_cast<std::uint32_t>(vector);
      uint4 codes;
      const GroupScale scale = quantise_situ<kBounded, kFormat>(
          p, input + std::uint64_t{lane_in_row} * p.lane_step, threadIdx.x % 32, codes);
      __stcs(reinterpret_cast<uint4*>(output_q + std::uint64_t{lane_in_row} * kSituQuantVec),
             codes);
      if (lane_in_row % kSituQuantLanes == 0)
        store_scale(scales, 0, lane_in_row / kSituQuantLanes, scale);
    }
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
