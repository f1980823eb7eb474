// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cuda/common/approx.cuh"
#include "cuda/common/packed_bf16.cuh"

/// SiTU of one gate and one up: beta tanh(g / beta) sigmoid(g) * soft(u). With beta = 4 it takes
/// three special functions, otherwise four, counting one for soft(u).
namespace k3::cuda {

struct SituCaps {
  float beta;
  float inv_beta;
  float linear_beta;
  float inv_linear_beta;
};

inline SituCaps situ_caps(float beta, float linear_beta) {
  // Never infinite, so that a zero times it stays a zero.
  const auto finite_reciprocal = [](float x) {
    constexpr float kMax = std::numeric_limits<float>::max();
    return std::clamp(1.0F / x, -kMax, kMax);
  };
  return {beta, finite_reciprocal(beta), linear_beta, finite_reciprocal(linear_beta)};
}

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
///   tanh(|g| / 4) = (1 - a) / (1 + a)
///   sigmoid(|g|) = 1 / (1 + a^2),   sigmoid(-|g|) = a^2 / (1 + a^2)
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

/// @tparam kBetaIsFour  caps.beta is 4
/// @tparam kHasSoftUp   else soft(u) = u
template <bool kBetaIsFour, bool kHasSoftUp>
__device__ float situ(float g, float u, const SituCaps& caps) {
  const GateFactors gate = kBetaIsFour ? gate_beta_four(g) : gate_any_beta(g, caps.inv_beta);
  const float up = kHasSoftUp ? caps.linear_beta * tanh_approx(u * caps.inv_linear_beta) : u;
  return caps.beta * gate.first * up * gate.second;
}

/// What situ_bounded is for: caps of K3, and any so small that up to 2^-60 of a cap is nothing.
inline bool has_bounded_situ(const SituCaps& caps) {
  return caps.beta == 4.0F && std::fabs(caps.linear_beta) <= 0x1p20F;
}

/// situ<true, true> of kWords pairs of bf16 in fewer operations, for caps as above. With e =
/// exp(-g / 2), of either sign:
///
///   tanh(g / 4) * sigmoid(g) = (1 - e) / ((1 + e)(1 + e^2))
///
/// Gates are held at -56, where this is e^-56, so that nothing overflows. 1 - e cancels for small
/// |g|: lanes with a gate below 2^-10 (relative error 2^-11 there) make those values again from
/// (g / 4)(1 / 2 + g / 4), within g^2 / 48 of them.
template <int kWords>
__device__ void situ_bounded(const std::uint32_t (&g)[kWords], const std::uint32_t (&u)[kWords],
                             const SituCaps& caps, float (&v)[2 * kWords]) {
  constexpr float kSmallGate = 0x1p-10F;
  const float cap = 4.0F * caps.linear_beta;
  __nv_bfloat162 held[kWords];
  __nv_bfloat162 smallest;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    held[i] = __hmax2_nan(as_bf16_pair(g[i]), __float2bfloat162_rn(-56.0F));
    smallest = i == 0 ? __habs2(held[0]) : __hmin2(smallest, __habs2(held[i]));
  }
#pragma unroll
  for (int i = 0; i < 2 * kWords; ++i) {
    const std::uint32_t gates = as_word(held[i / 2]);
    const float gate = i % 2 == 0 ? low_half(gates) : high_half(gates);
    const float up = i % 2 == 0 ? low_half(u[i / 2]) : high_half(u[i / 2]);
    const float e = exp2_approx(-0.5F * kLog2E * gate);
    const float one_plus_e = 1.0F + e;
    const float quotient = fmaf(-cap, e, cap) * rcp_approx(fmaf(one_plus_e, e * e, one_plus_e));
    v[i] = quotient * tanh_approx(up * caps.inv_linear_beta);
  }
  const std::uint32_t least = as_word(smallest);
  if (fminf(low_half(least), high_half(least)) >= kSmallGate) return;
#pragma unroll
  for (int i = 0; i < 2 * kWords; ++i) {
    const std::uint32_t gates = as_word(held[i / 2]);
    const float gate = i % 2 == 0 ? low_half(gates) : high_half(gates);
    const float up = i % 2 == 0 ? low_half(u[i / 2]) : high_half(u[i / 2]);
    if (fabsf(gate) < kSmallGate)
      v[i] = 0.25F * cap * gate * fmaf(0.25F, gate, 0.5F) * tanh_approx(up * caps.inv_linear_beta);
  }
}

}  // namespace k3::cuda
