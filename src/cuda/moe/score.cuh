// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "contract/moe_route.h"
#include "core/bf16.h"
#include "cuda/common/approx.cuh"
#include "cuda/common/packed_bf16.cuh"

/// A router logit and what it ranks as. Every kernel that routes is made of these, so that they
/// choose the same experts and weight them by the same bits.
namespace k3::cuda::moe {

__device__ inline float load_score(const float* at) { return *at; }
__device__ inline float load_score(const bf16* at) {
  return __uint_as_float(static_cast<std::uint32_t>(at->bits) << 16);
}

/// 1 / (1 + exp(-x)): 0 at -inf, 1 at +inf, NaN at NaN, subnormal results kept. The quarter keeps
/// the denominator below 2^126, past which its reciprocal would be flushed to zero. Relative error
/// 4e-7 near zero; far below it grows as that of exp, 9e-8 |x|.
__device__ inline float router_sigmoid(float x) {
  const float e = exp2_approx(-kLog2E * x);
  return 0.25F * rcp_approx(fmaf(e, 0.25F, 0.25F));
}

/// The biased score as an unsigned integer of the same order, never 0. An activation is not -0, so
/// the sum is not either, and equal scores have equal keys.
__device__ inline std::uint32_t rank_key(float activation, float bias) {
  float biased = activation + bias;
  if (biased != biased) biased = kMoeNaNScore;
  const std::uint32_t u = __float_as_uint(biased);
  return static_cast<std::int32_t>(u) < 0 ? ~u : u | 0x80000000U;
}

/// As `pack_topk` of contract/moe_route.h.
__device__ inline std::int32_t packed_topk(std::int64_t id, float weight) {
  const std::uint32_t bits = weight != weight ? 0x7FC0U : pack_bf16(weight, 0.0F);
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(id) << 16 | bits);
}

}  // namespace k3::cuda::moe
