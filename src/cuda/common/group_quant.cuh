// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "contract/per_token_group_quant.h"
#include "core/group_quant.h"
#include "cuda/common/fp8.cuh"
#include "cuda/common/warp.cuh"

/// Quantisation of one group of values, spread over neighbouring lanes: core/group_quant.h on the
/// device, bit for bit.
///
///   amax   = warp::max(largest_magnitude(x), lanes)      the same in all lanes of the group
///   scale  = group_scale<format>(amax)
///   codes  = quantise_vector<format>(x, scale.multiplier)
///   one lane: store_scale(...)
namespace k3::cuda {

/// NaN is ignored; 0 where there is nothing else.
template <int kN>
__device__ float largest_magnitude(const float (&x)[kN]) {
  float largest = 0.0F;
#pragma unroll
  for (int i = 0; i < kN; ++i) largest = fmaxf(largest, fabsf(x[i]));
  return largest;
}

template <QuantFormat kFormat>
__device__ GroupScale group_scale(float amax) {
  amax = fminf(fmaxf(amax, kLeastAmax), FLT_MAX);
  GroupScale scale = {};
  if constexpr (kFormat == QuantFormat::kI8) {
    scale.stored = amax * (1.0F / 127.0F);
    scale.multiplier = __fdiv_rn(127.0F, amax);
  } else if constexpr (kFormat == QuantFormat::kE4M3) {
    scale.stored = amax * (1.0F / kMaxE4M3);
    scale.multiplier = __fdiv_rn(kMaxE4M3, amax);
  } else {
    const std::uint32_t byte = ue8m0_ceil(amax * (1.0F / kMaxE4M3));
    scale.stored = ue8m0_value(byte);
    scale.multiplier = ue8m0_reciprocal(byte);
    scale.byte = static_cast<std::uint8_t>(byte);
  }
  return scale;
}

/// x * multiplier, held to the codes' range so that NaN gives the largest code.
template <QuantFormat kFormat>
__device__ float scaled_to_codes(float x, float multiplier) {
  if constexpr (kFormat == QuantFormat::kI8)
    return fmaxf(fminf(x * multiplier, 127.0F), -128.0F);
  else
    return fminf(x * multiplier, kMaxE4M3);  // the conversion saturates below
}

/// The codes of four values in a word, the first in the lowest byte.
template <QuantFormat kFormat>
__device__ std::uint32_t quantise_quad(float x0, float x1, float x2, float x3, float multiplier) {
  x0 = scaled_to_codes<kFormat>(x0, multiplier);
  x1 = scaled_to_codes<kFormat>(x1, multiplier);
  x2 = scaled_to_codes<kFormat>(x2, multiplier);
  x3 = scaled_to_codes<kFormat>(x3, multiplier);
  if constexpr (kFormat == QuantFormat::kI8) {
    const std::uint32_t low = (__float2int_rz(x0) & 0xFF) | (__float2int_rz(x1) & 0xFF) << 8;
    const std::uint32_t high = (__float2int_rz(x2) & 0xFF) | (__float2int_rz(x3) & 0xFF) << 8;
    return low | high << 16;
  } else {
    return e4m3_quad(x0, x1, x2, x3);
  }
}

/// The codes of 16 values, in order.
template <QuantFormat kFormat>
__device__ uint4 quantise_vector(const float (&x)[16], float multiplier) {
  std::uint32_t codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    codes[i] =
        quantise_quad<kFormat>(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3], multiplier);
  return {codes[0], codes[1], codes[2], codes[3]};
}

/// Writes the scale of group g of a row; one lane of the group calls. Bytes are stored alone: other
/// groups of their word belong to other lanes. The last group of a row also fills its word with
/// zeros.
__device__ inline void store_scale(const ScaleRows& to, std::int64_t row, std::uint64_t g,
                                   const GroupScale& scale) {
  if (!to.packed) {
    static_cast<float*>(to.data)[row * to.row_stride + g * to.group_stride] = scale.stored;
    return;
  }
  auto* const bytes =
      static_cast<std::uint8_t*>(to.data) + 4 * (row * to.row_stride + (g >> 2) * to.group_stride);
  bytes[g & 3] = scale.byte;
  if (g + 1 == static_cast<std::uint64_t>(to.num_groups))
    for (std::uint64_t i = (g & 3) + 1; i < 4; ++i) bytes[i] = 0;
}

}  // namespace k3::cuda
