// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "core/bf16.h"
#include "core/f16.h"
#include "cuda/common/divider.h"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"

/// One thread rotates kPairs neighbouring pairs of one head of one token, of q and of k: the
/// factors serve both, and reach the other heads of the token through the L1. It reads all of them
/// before it writes, so outputs may be their inputs. No shared memory, no barrier.
namespace k3::cuda {

inline constexpr int kRopeThreads = 256;

/// [tokens, H, D] of one launch; strides in elements.
struct RopeTensor {
  void* data;
  std::int64_t stride_t;
  std::int64_t stride_h;
};

struct RopeParams {
  RopeTensor q;
  RopeTensor k;
  RopeTensor q_out;
  RopeTensor k_out;
  const float* freqs;
  std::int64_t freqs_stride;
  std::uint32_t num_units;    ///< tokens * H * head_units, below 2^31
  std::uint32_t token_units;  ///< H * head_units
  std::uint32_t head_units;   ///< D / (2 * kPairs)
  Divider by_token_units;
  Divider by_head_units;
};

template <class T>
__device__ float2 unpack(std::uint32_t pair);
template <>
__device__ inline float2 unpack<bf16>(std::uint32_t pair) {
  return {low_half(pair), high_half(pair)};
}
template <>
__device__ inline float2 unpack<f16>(std::uint32_t pair) {
  return __half22float2(reinterpret_cast<const __half2&>(pair));
}

/// Both rounded to nearest even.
template <class T>
__device__ std::uint32_t pack(float2 pair);
template <>
__device__ inline std::uint32_t pack<bf16>(float2 pair) {
  return pack_bf16(pair.x, pair.y);
}
template <>
__device__ inline std::uint32_t pack<f16>(float2 pair) {
  const __half2 halves = __floats2half2_rn(pair.x, pair.y);
  return reinterpret_cast<const std::uint32_t&>(halves);
}

/// kPairs pairs of 16-bit elements.
template <int kPairs>
struct Pairs {
  std::uint32_t pair[kPairs];
};

__device__ inline void load_pairs(const std::uint16_t* from, Pairs<4>& to) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  to = {{v.x, v.y, v.z, v.w}};
}
/// Aligned to the element alone.
__device__ inline void load_pairs(const std::uint16_t* from, Pairs<1>& to) {
  to = {{from[0] | static_cast<std::uint32_t>(from[1]) << 16}};
}
__device__ inline void store_pairs(std::uint16_t* to, const Pairs<4>& v) {
  __stcs(reinterpret_cast<uint4*>(to), make_uint4(v.pair[0], v.pair[1], v.pair[2], v.pair[3]));
}
__device__ inline void store_pairs(std::uint16_t* to, const Pairs<1>& v) {
  to[0] = static_cast<std::uint16_t>(v.pair[0]);
  to[1] = static_cast<std::uint16_t>(v.pair[0] >> 16);
}

/// (c, s) of each pair.
__device__ inline void load_freqs(const float* from, float2 (&to)[4]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  to[0] = {low.x, low.y};
  to[1] = {low.z, low.w};
  to[2] = {high.x, high.y};
  to[3] = {high.z, high.w};
}
__device__ inline void load_freqs(const float* from, float2 (&to)[1]) {
  to[0] = {from[0], from[1]};
}

template <class T, int kPairs>
__device__ Pairs<kPairs> rotate(const Pairs<kPairs>& in, const float2 (&freqs)[kPairs]) {
  Pairs<kPairs> out;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const float2 x = unpack<T>(in.pair[i]);
    const float c = freqs[i].x;
    const float s = freqs[i].y;
    out.pair[i] = pack<T>({fmaf(x.x, c, -(x.y * s)), fmaf(x.x, s, x.y * c)});
  }
  return out;
}

template <class T, int kPairs>
__global__ __launch_bounds__(kRopeThreads) void vision_rope_kernel(
    const __grid_constant__ RopeParams p) {
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * kRopeThreads + threadIdx.x;
  if (index >= p.num_units) return;
  const std::uint32_t t = p.by_token_units.quotient(index);
  const std::uint32_t in_token = index - t * p.token_units;
  const std::uint32_t h = p.by_head_units.quotient(in_token);
  const std::int64_t column = static_cast<std::int64_t>(in_token - h * p.head_units) * 2 * kPairs;
  const auto at = [&](const RopeTensor& x) {
    return static_cast<std::uint16_t*>(x.data) + t * x.stride_t + h * x.stride_h + column;
  };

  pdl_wait();
  Pairs<kPairs> q;
  Pairs<kPairs> k;
  float2 freqs[kPairs];
  load_pairs(at(p.q), q);
  load_pairs(at(p.k), k);
  load_freqs(p.freqs + t * p.freqs_stride + column, freqs);
  store_pairs(at(p.q_out), rotate<T, kPairs>(q, freqs));
  store_pairs(at(p.k_out), rotate<T, kPairs>(k, freqs));
}

}  // namespace k3::cuda
