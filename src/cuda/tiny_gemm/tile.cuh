// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/mma.cuh"
#include "k3/tensor.h"

/// What the tensor-core variants of tiny_gemm share: x as the 16-row operand of mma.m16n8k16, eight
/// rows of w as the other.
///
/// A chunk is 32 values of k. Lane 4g + t holds the 8 from 8t on of row g of w, and of rows g and
/// g + 8 of x: 16 bytes each, as they stand in memory. A chunk makes two products, words 0 and 1 of
/// every lane and words 2 and 3. So k is permuted, but in both operands alike.
namespace k3::cuda {

inline constexpr int kChunk = 32;

/// A checked call whose rows are aligned to 16 bytes, with K % 8 == 0.
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
};

/// A lane's share of a chunk of x. Without kTwoHalves M is at most 8 and `below` is zero.
struct ChunkOfX {
  uint4 above;  ///< row g
  uint4 below;  ///< row g + 8
};

/// Zeros outside x. Only after pdl_wait.
template <bool kTwoHalves>
__device__ ChunkOfX load_x(const TinyGemmParams& p, int chunk, int lane) {
  const int row = lane / 4;
  const int k = chunk * kChunk + 8 * (lane % 4);
  const bf16* const from = p.x + row * p.x_stride + k;
  ChunkOfX x = {};
  if (k < p.K && row < p.M) x.above = *reinterpret_cast<const uint4*>(from);
  if (kTwoHalves && k < p.K && row + 8 < p.M)
    x.below = *reinterpret_cast<const uint4*>(from + 8 * p.x_stride);
  return x;
}

/// sums [16 rows of x, 8 rows of w] += the products of a chunk, in two chains.
__device__ inline void multiply_chunk(FragmentC (&sums)[2], const ChunkOfX& x, uint4 w) {
  multiply_add(sums[0], {{x.above.x, x.below.x, x.above.y, x.below.y}}, w.x, w.y);
  multiply_add(sums[1], {{x.above.z, x.below.z, x.above.w, x.below.w}}, w.z, w.w);
}

/// The sum of both chains.
__device__ inline float4 total(const FragmentC (&sums)[2]) {
  return {sums[0].c[0] + sums[1].c[0], sums[0].c[1] + sums[1].c[1], sums[0].c[2] + sums[1].c[2],
          sums[0].c[3] + sums[1].c[3]};
}

__device__ inline void store_output(const TinyGemmParams& p, int m, int n, float value) {
  if (m >= p.M || n >= p.N) return;
  const std::int64_t at = m * p.out_stride + n;
  if (p.out_is_f32)
    static_cast<float*>(p.out)[at] = value;
  else
    static_cast<std::uint16_t*>(p.out)[at] = static_cast<std::uint16_t>(pack_bf16(value, 0.0F));
}

/// A lane's four sums of columns n0 .. n0 + 7.
__device__ inline void store_outputs(const TinyGemmParams& p, int n0, int lane, float4 sums) {
  const int row = lane / 4;
  const int n = n0 + 2 * (lane % 4);
  store_output(p, row, n, sums.x);
  store_output(p, row, n + 1, sums.y);
  store_output(p, row + 8, n, sums.z);
  store_output(p, row + 8, n + 1, sums.w);
}

}  // namespace k3::cuda
