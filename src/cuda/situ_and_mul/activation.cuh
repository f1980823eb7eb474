// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/common/approx.cuh"

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

/// What situ_bounded reaches: below this the part of the gate that an exponential flushes, times
/// up, is below 2^-100.
inline bool has_bounded_situ(const SituCaps& caps) {
  return caps.beta == 4.0F && std::fabs(caps.linear_beta) <= 0x1p20F;
}

/// situ<true, true> in fewer operations, for caps as above. The sign of a zero may be another.
__device__ inline float situ_bounded(float g, float u, const SituCaps& caps) {
  const float cap = 4.0F * caps.linear_beta;
  const float magnitude = fabsf(g);
  const float a = exp2_approx(-0.5F * kLog2E * magnitude);
  const float a2 = a * a;
  const float one_plus_a = 1.0F + a;
  const float numerator =
      magnitude < 0x1p-5F ? 0.25F * cap * magnitude * one_plus_a : fmaf(-cap, a, cap);
  const float gate = numerator * rcp_approx(fmaf(one_plus_a, a2, one_plus_a));
  return gate * (g < 0.0F ? -a2 : 1.0F) * tanh_approx(u * caps.inv_linear_beta);
}

}  // namespace k3::cuda
