// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/approx.cuh"
#include "cuda/common/divider.h"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/situ_and_mul/traits.cuh"

/// out = beta tanh(g / beta) sigmoid(g) * soft(u). One thread makes one vector of one row.
///
/// Memory-bound, but not by much: at 16 special-function results a clock and SM, four of them per
/// output would take three quarters of the time that the bytes take. The forms below need three
/// with beta = 4, and four otherwise, counting one for soft(u).
namespace k3::cuda {

/// A block of rows and columns of the problem, small enough for 32-bit vector indices.
struct SituAndMulParams {
  const bf16* gate;           ///< [rows, columns]
  const bf16* up;             ///< [rows, columns], same stride
  bf16* out;                  ///< [rows, columns]
  std::int64_t input_stride;  ///< elements
  std::int64_t out_stride;    ///< elements
  std::uint32_t row_vectors;  ///< columns / kVec
  std::uint32_t num_vectors;  ///< rows * row_vectors, below 2^31
  Divider by_row_vectors;
  float beta;
  float inv_beta;
  float linear_beta;
  float inv_linear_beta;
};

// Functions that take subnormals for zero (common/approx.cuh) do here: arguments and results are
// either far from those or squared and scaled into zero anyway.

/// Relative error 2^-11: an eighth of the spacing of bf16.
__device__ inline float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// A gate in two factors, the second to be applied after up: below -87 their product alone would
/// leave the range of fp32, though times a huge up it does not.
struct GateFactors {
  float first;
  float second;
};

/// tanh(g / 4) * sigmoid(g) from one exponential and one reciprocal. With a = exp(-|g| / 2):
///
///   tanh(|g| / 4) = (1 - a) / (1 + a),   sigmoid(|g|) = 1 / (1 + a^2),   sigmoid(-|g|) = a^2 / (1
///   + a^2)
///
/// a is in [0, 1], so nothing overflows, -inf gives a zero and NaN stays NaN. 1 - a cancels for
/// small |g|; below 2^-5 the argument stands for its tanh (relative error x^2 / 3 = 2^-15.6).
__device__ inline GateFactors gate_beta_four(float g) {
  const float magnitude = fabsf(g);
  const float a = exp2_approx(-0.5F * kLog2E * magnitude);
  const float a2 = a * a;
  const float one_plus_a = 1.0F + a;
  const float numerator = magnitude < 0x1p-5F ? 0.25F * magnitude * one_plus_a : 1.0F - a;
  const float positive = numerator * rcp_approx(one_plus_a * (1.0F + a2));
  return g < 0.0F ? GateFactors{-positive * a, a} : GateFactors{copysignf(positive, g), 1.0F};
}

/// tanh(g / beta) * sigmoid(g) for any beta. The square keeps exp(-|g|) out of the range that the
/// exponential flushes.
__device__ inline GateFactors gate_any_beta(float g, float inv_beta) {
  const float a = exp2_approx(-0.5F * kLog2E * fabsf(g));
  const float a2 = a * a;
  const float first = tanh_approx(g * inv_beta) * rcp_approx(1.0F + a2);
  return g < 0.0F ? GateFactors{first * a, a} : GateFactors{first, 1.0F};
}

template <class Traits>
__device__ float situ_and_mul(float g, float u, const SituAndMulParams& p) {
  const GateFactors gate = Traits::kBetaIsFour ? gate_beta_four(g) : gate_any_beta(g, p.inv_beta);
  const float up = Traits::kHasSoftUp ? p.linear_beta * tanh_approx(u * p.inv_linear_beta) : u;
  return p.beta * gate.first * up * gate.second;
}

template <class Traits>
__device__ std::uint32_t situ_and_mul_pair(std::uint32_t g, std::uint32_t u,
                                           const SituAndMulParams& p) {
  return pack_bf16(situ_and_mul<Traits>(low_half(g), low_half(u), p),
                   situ_and_mul<Traits>(high_half(g), high_half(u), p));
}

template <class Traits>
__device__ uint4 situ_and_mul_vector(uint4 g, uint4 u, const SituAndMulParams& p) {
  return {situ_and_mul_pair<Traits>(g.x, u.x, p), situ_and_mul_pair<Traits>(g.y, u.y, p),
          situ_and_mul_pair<Traits>(g.z, u.z, p), situ_and_mul_pair<Traits>(g.w, u.w, p)};
}

template <class Traits>
__device__ uint2 situ_and_mul_vector(uint2 g, uint2 u, const SituAndMulParams& p) {
  return {situ_and_mul_pair<Traits>(g.x, u.x, p), situ_and_mul_pair<Traits>(g.y, u.y, p)};
}

template <class Traits>
__device__ unsigned short situ_and_mul_vector(unsigned short g, unsigned short u,
                                              const SituAndMulParams& p) {
  return static_cast<unsigned short>(situ_and_mul_pair<Traits>(g, u, p));
}

template <class Traits>
__global__ __launch_bounds__(Traits::kNumThreads) void situ_and_mul_kernel(
    const __grid_constant__ SituAndMulParams p) {
  using Vector = typename Traits::Vector;
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * Traits::kNumThreads + threadIdx.x;
  if (index >= p.num_vectors) return;
  const std::uint32_t row = p.by_row_vectors.quotient(index);
  const std::int64_t column = static_cast<std::int64_t>(index - row * p.row_vectors) * Traits::kVec;
  const std::int64_t in_offset = row * p.input_stride + column;
  const std::int64_t out_offset = row * p.out_stride + column;

  // Ordinary loads and streaming stores are the fastest pair: the output leaves the L2 first.
  pdl_wait();
  const Vector g = *reinterpret_cast<const Vector*>(p.gate + in_offset);
  const Vector u = *reinterpret_cast<const Vector*>(p.up + in_offset);
  __stcs(reinterpret_cast<Vector*>(p.out + out_offset), situ_and_mul_vector<Traits>(g, u, p));
}

}  // namespace k3::cuda
