// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/attn_res_mix.h"
#include "core/bf16.h"
#include "cuda/common/approx.cuh"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/warp.cuh"

/// What the kernels of attn_res_mix share: eight elements of a row in a uint4, their sums, and the
/// softmax over a token's rows.
namespace k3::cuda {

__device__ inline void widen(uint4 x, float (&to)[8]) {
  const std::uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = low_half(words[i]);
    to[2 * i + 1] = high_half(words[i]);
  }
}

__device__ inline uint4 narrow(const float (&x)[8]) {
  return {pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
          pack_bf16(x[6], x[7])};
}

/// Keeps the compiler from carrying the row's elements as floats from the scores to the mixture:
/// twice the registers, for a few shifts.
__device__ inline void keep_narrow(uint4& x) {
  asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w));
}

/// c of eight columns; the product is exact.
__device__ inline void load_score_vector(const AttnResMixProblem& p, int column, float (&c)[8]) {
  widen(*reinterpret_cast<const uint4*>(p.score_weight + column), c);
  if (p.score_proj == nullptr) return;
  float factor[8];
  widen(*reinterpret_cast<const uint4*>(p.score_proj + column), factor);
#pragma unroll
  for (int i = 0; i < 8; ++i) c[i] *= factor[i];
}

__device__ inline void add_scores(uint4 x, const float (&c)[8], float& squares, float& dot) {
  float r[8];
  widen(x, r);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    squares = fmaf(r[i], r[i], squares);
    dot = fmaf(r[i], c[i], dot);
  }
}

__device__ inline void add_weighted(uint4 x, float weight, float (&mixed)[8]) {
  float r[8];
  widen(x, r);
#pragma unroll
  for (int i = 0; i < 8; ++i) mixed[i] = fmaf(weight, r[i], mixed[i]);
}

__device__ inline float add_squares(const float (&x)[8], float squares) {
#pragma unroll
  for (int i = 0; i < 8; ++i) squares = fmaf(x[i], x[i], squares);
  return squares;
}

__device__ inline uint4 normed(const float (&mixed)[8], float inverse_rms, uint4 out_norm_weight) {
  float y[8];
  widen(out_norm_weight, y);
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] *= mixed[i] * inverse_rms;
  return narrow(y);
}

/// Row j of token t, the prefix last.
template <int kRows>
__device__ const bf16* row_of(const AttnResMixProblem& p, std::int64_t t, int j) {
  return j + 1 < kRows ? p.bank + t * p.bank_token_stride + j * p.bank_row_stride
                       : p.prefix + t * p.prefix_stride;
}
__device__ inline bf16* written_row(const AttnResMixProblem& p, std::int64_t t) {
  return p.bank + t * p.bank_token_stride + p.num_bank_rows * p.bank_row_stride;
}

/// 1 / rms for the sum of squares of a whole row.
__device__ inline float inverse_rms(float squares, int H, float eps) {
  return rsqrtf(squares / static_cast<float>(H) + eps);
}

/// The softmax over the scores of a token. `total` of lane first + j is the sum of squares of row
/// j, of lane first + kRows + j its dot with c; every lane gets all weights. fmaxf drops a NaN,
/// whose exponential then spoils the sum: all weights are NaN, as they should.
template <int kRows>
__device__ void softmax_of_totals(float total, int first, int H, float eps,
                                  float (&weights)[kRows]) {
  static_assert(2 * kRows <= 32);
  const float dot = __shfl_down_sync(warp::kAllLanes, total, kRows);
  const float score = dot * inverse_rms(total, H, eps);
  float largest = -__int_as_float(0x7F800000);
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    weights[j] = __shfl_sync(warp::kAllLanes, score, first + j);
    largest = fmaxf(largest, weights[j]);
  }
  float sum = 0.0F;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    weights[j] = exp2_approx((weights[j] - largest) * kLog2E);
    sum += weights[j];
  }
  const float inverse = rcp_approx(sum);
#pragma unroll
  for (int j = 0; j < kRows; ++j) weights[j] *= inverse;
}

}  // namespace k3::cuda
