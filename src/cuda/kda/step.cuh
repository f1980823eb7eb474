// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/kda.h"
#include "cuda/common/approx.cuh"
#include "cuda/kda/quad.cuh"
#include "cuda/kda/t128.cuh"

/// One KDA step of one head, as parts. Every kernel that advances a state token by token is made of
/// these, so that one step, a verify over several tokens and a replay of their commit agree bit for
/// bit. A warp holds 128 channels, four consecutive ones (one T128 group) in a lane.
namespace k3::cuda {

inline constexpr int kHeadDim = kKdaHeadDim;
inline constexpr int kHeadElements = kHeadDim * kHeadDim;  ///< of the state of one head
static_assert(kHeadDim == 4 * 32, "a warp holds a head's channels, four a lane");

/// 1 / (1 + exp(-x)), about 3 ulp: 0 at -inf, 1 at +inf, NaN at NaN.
__device__ inline float sigmoid(float x) { return rcp_approx(1.0F + expf(-x)); }

/// log(1 + exp(x)) without overflow.
__device__ inline float softplus(float x) { return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x))); }

/// A quad of taps of the convolution, oldest first, and its weights.
struct ConvQuad {
  Bf16Quad tap[kKdaConvWidth];
};
struct ConvWeightQuad {
  float4 tap[kKdaConvWidth];
  float4 bias;
};

/// `weight` and `bias` (or null) point at the quad's first channel.
template <class Access>
__device__ ConvWeightQuad load_conv_weights(const float* weight, std::int64_t tap_stride,
                                            const float* bias) {
  ConvWeightQuad w;
#pragma unroll
  for (int t = 0; t < kKdaConvWidth; ++t) w.tap[t] = Access::load(weight + t * tap_stride);
  w.bias = bias != nullptr ? Access::load(bias) : float4{0.0F, 0.0F, 0.0F, 0.0F};
  return w;
}

/// SiLU(bias + sum over taps, oldest first), rounded.
__device__ inline float4 conv_silu(const ConvWeightQuad& w, const ConvQuad& x, Rounding rounding) {
  float4 sum = w.bias;
#pragma unroll
  for (int t = 0; t < kKdaConvWidth; ++t) sum = fma(widen(x.tap[t]), w.tap[t], sum);
  const float4 silu = sum * map(sum, sigmoid);
  return rounding == Rounding::kBF16 ? round_to_bf16(silu) : silu;
}

/// 1 / sqrt(sum x^2 + 1e-6) over the 128 channels of the warp.
__device__ inline float inverse_norm(float4 x) {
  const float squares = warp::sum(t128_group(x, x));
  return rsqrtf(squares + kKdaL2Eps);
}
__device__ inline float4 normalised_query(float4 q, float scale) {
  return (q * inverse_norm(q)) * scale;
}
__device__ inline float4 normalised_key(float4 k) { return k * inverse_norm(k); }

/// The gate of one head: log decays from raw gates plus bias.
struct Gate {
  float a;            ///< exp(A_log)
  float lower_bound;  ///< of the safe gate
  bool is_safe;

  __device__ float operator()(float x) const {
    return is_safe ? lower_bound * sigmoid(a * x) : -a * softplus(x);
  }
};

/// exp(A_log), or 1 where there is none.
__device__ inline float gate_scale(const float* A_log, int head) {
  return A_log != nullptr ? expf(A_log[head]) : 1.0F;
}

__device__ inline float4 decay_of(float4 log_decay) {
  return map(log_decay, [](float x) { return expf(x); });
}

/// 1 / sqrt(mean o^2 + eps) from the sum of squares in T128 order.
__device__ inline float inverse_rms(float squares, float eps) {
  return rsqrtf(squares * (1.0F / kHeadDim) + eps);
}

}  // namespace k3::cuda
