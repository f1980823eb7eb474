// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/mma.cuh"
#include "cuda/common/prefetch.cuh"

/// What the tensor-core variants of tiny_gemm share: x as the 16-row operand of mma.m16n8k16, eight
/// rows of w, a tile, as the other.
///
/// A chunk is 32 values of k. Lane 4g + t holds the 8 from 8t on of row g of the tile, and of rows
/// g and g + 8 of x: 16 bytes each, as they stand in memory. A chunk makes two products, of words 0
/// and 1 of every lane and of words 2 and 3. So k is permuted, but in both operands alike.
namespace k3::cuda {

inline constexpr int kChunk = 32;
inline constexpr int kTileRows = 8;

/// A checked call. The tensor-core variants: rows aligned to 16 bytes, K % 8 == 0.
struct TinyGemmParams {
  const bf16* x;  ///< [M, K]
  const bf16* w;  ///< [N, K]
  void* out;      ///< [M, N]
  std::int64_t x_stride;
  std::int64_t w_stride;
  std::int64_t out_stride;
  int M;
  int N;
  int K;
  bool out_is_f32;
  bool pairs;  ///< even columns of out are aligned to two elements
};

/// A lane's share of a chunk of x. Where M is at most 8, `below` is zero.
struct ChunkOfX {
  uint4 above;  ///< row g
  uint4 below;  ///< row g + 8
};

/// The sums of a tile [16 rows of x, 8 rows of w], in kChains parts.
template <int kChains>
struct TileSums {
  FragmentC chain[kChains];
};

/// Adds the products of a warp's chunk number `i`, two chains on from the last one.
template <int kChains>
__device__ void multiply_chunk(TileSums<kChains>& sums, int i, const ChunkOfX& x, uint4 w) {
  multiply_add(sums.chain[2 * i % kChains], {{x.above.x, x.below.x, x.above.y, x.below.y}}, w.x,
               w.y);
  multiply_add(sums.chain[(2 * i + 1) % kChains], {{x.above.z, x.below.z, x.above.w, x.below.w}},
               w.z, w.w);
}

__device__ inline float4 plus(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// The sum of the chains: columns 2t and 2t + 1 of row g, then of row g + 8.
template <int kChains>
__device__ float4 total(const TileSums<kChains>& sums) {
  float4 total = {};
#pragma unroll
  for (const FragmentC& part : sums.chain)
    total = plus(total, {part.c[0], part.c[1], part.c[2], part.c[3]});
  return total;
}

__device__ inline void store_output(const TinyGemmParams& p, std::int64_t at, float value) {
  if (p.out_is_f32)
    static_cast<float*>(p.out)[at] = value;
  else
    static_cast<std::uint16_t*>(p.out)[at] = static_cast<std::uint16_t>(pack_bf16(value, 0.0F));
}

/// Columns n and n + 1, n even, of row m, as far as they are below `end`.
__device__ inline void store_pair(const TinyGemmParams& p, int m, int n, int end, float first,
                                  float second) {
  if (m >= p.M || n >= end) return;
  const std::int64_t at = m * p.out_stride + n;
  if (p.pairs && n + 1 < end) {
    if (p.out_is_f32)
      *reinterpret_cast<float2*>(static_cast<float*>(p.out) + at) = {first, second};
    else
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(p.out) + at) =
          pack_bf16(first, second);
    return;
  }
  store_output(p, at, first);
  if (n + 1 < end) store_output(p, at + 1, second);
}

/// A lane's sums of the tile whose first column is n0, which is even, as far as they are below
/// `end`.
template <bool kTwoHalves>
__device__ void store_tile(const TinyGemmParams& p, int n0, int end, int lane, float4 sums) {
  const int n = n0 + 2 * (lane % 4);
  store_pair(p, lane / 4, n, end, sums.x, sums.y);
  if constexpr (kTwoHalves) store_pair(p, lane / 4 + 8, n, end, sums.z, sums.w);
}

}  // namespace k3::cuda
