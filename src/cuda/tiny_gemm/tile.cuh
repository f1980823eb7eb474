// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/float4.cuh"
#include "cuda/common/mma.cuh"
#include "cuda/common/packed_bf16.cuh"

/// What the tensor-core variants of tiny_gemm share: sums of m16n8k16, one operand of x and one of
/// w.
///
/// A chunk is 32 values of k. Lane 4g + t holds the 8 from 8t on of a row of x and of w, those with
/// number g: 16 bytes, as they stand in memory. A chunk makes two products, of words 0 and 1 of
/// every lane and of words 2 and 3. So k is permuted, but in both operands alike.
namespace k3::cuda {

inline constexpr int kChunk = 32;

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

/// The sums of a product of 16 rows and eight, in kChains parts.
template <int kChains>
struct TileSums {
  FragmentC chain[kChains];
};

/// The sum of the chains: rows 2t and 2t + 1 of the eight with row g of the 16, then with row g
/// + 8.
template <int kChains>
__device__ float4 total(const TileSums<kChains>& sums) {
  const auto values = [&](int i) {
    const float(&c)[4] = sums.chain[i].c;
    return float4{c[0], c[1], c[2], c[3]};
  };
  float4 total = values(0);
#pragma unroll
  for (int i = 1; i < kChains; ++i) total = total + values(i);
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

}  // namespace k3::cuda
