// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/approx.cuh"
#include "cuda/common/bf16_vector.cuh"
#include "cuda/common/divider.h"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"

/// out = bf16(x * bf16(sigmoid(gate))). One thread makes one vector of one row; no shared memory,
/// no barrier. The arithmetic is 20 instructions an element, one of them a special function, so
/// that the bytes bind. CTAs that may start while their predecessor still runs bring what they will
/// load into the L2 meanwhile.
namespace k3::cuda {

inline constexpr int kMlaOutputGateThreads = 256;

/// A block of rows and columns of the problem, small enough for 32-bit vector indices.
struct MlaOutputGateParams {
  const bf16* x;     ///< [rows, columns]
  const bf16* gate;  ///< [rows, columns]
  bf16* out;         ///< [rows, columns]; may be x
  std::int64_t x_stride;
  std::int64_t gate_stride;
  std::int64_t out_stride;
  std::uint32_t row_vectors;  ///< columns of a vector each
  std::uint32_t num_vectors;  ///< rows * row_vectors, below 2^31
  std::uint32_t early_ctas;   ///< as many may start early
  Divider by_row_vectors;
};

/// sigmoid(g) = 1 / (1 + 2^t), t = -g log2(e), for a bf16 value g in [-93.5, 64], close enough that
/// rounding it to bf16 rounds the exact one, for every such g (docs/mla_output_gate.md); NaN stays.
///
/// 2^t is a polynomial of degree 5 in the fraction of t, times the whole power, which a sum with
/// 1.5 * 2^23 leaves in the low mantissa bits, biased by 127 - 16. Everything is scaled by 2^-16:
/// the quotient then stays in the normal range until its last step, which rounds a subnormal result
/// once. No exponential of the hardware's: its bits are not the same on every chip.
__device__ inline float sigmoid_of_bf16(float g) {
  constexpr float kRoundAndBias = 12582912.0F + 111.0F;
  const float shifted = fmaf(g, -kLog2E, kRoundAndBias);
  const float fraction = fmaf(g, -kLog2E, -(shifted - kRoundAndBias));
  const float power = __uint_as_float(__float_as_uint(shifted) << 23);
  float p = fmaf(1.33908633e-3F, fraction, 9.67603177e-3F);
  p = fmaf(p, fraction, 5.55035695e-2F);
  p = fmaf(p, fraction, 2.40221068e-1F);
  p = fmaf(p, fraction, 6.93147182e-1F);
  p = fmaf(p, fraction, 1.0F);
  const float denominator = fmaf(p, power, 0x1p-16F);
  const float reciprocal = rcp_approx(denominator);
  const float error = fmaf(-denominator, reciprocal, 1.0F);
  const float scaled = reciprocal * 0x1p-16F;
  return fmaf(scaled, error, scaled);
}

/// Past these bounds the sigmoid rounds to 0 and to 1. A NaN stays.
__device__ inline std::uint32_t clamp_gates(std::uint32_t gates) {
  const auto pair = reinterpret_cast<const __nv_bfloat162&>(gates);
  const __nv_bfloat162 held =
      __hmin2_nan(__hmax2_nan(pair, __float2bfloat162_rn(-93.5F)), __float2bfloat162_rn(64.0F));
  return reinterpret_cast<const std::uint32_t&>(held);
}

/// Of a pair.
__device__ inline std::uint32_t gated(std::uint32_t x, std::uint32_t gates) {
  const std::uint32_t held = clamp_gates(gates);
  const std::uint32_t s =
      pack_bf16(sigmoid_of_bf16(low_half(held)), sigmoid_of_bf16(high_half(held)));
  return pack_bf16(low_half(x) * low_half(s), high_half(x) * high_half(s));
}

template <int kVec>
__global__ __launch_bounds__(kMlaOutputGateThreads) void mla_output_gate_kernel(
    const __grid_constant__ MlaOutputGateParams p) {
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * kMlaOutputGateThreads + threadIdx.x;
  if (index >= p.num_vectors) return;
  const std::uint32_t row = p.by_row_vectors.quotient(index);
  const std::uint32_t vector = index - row * p.row_vectors;
  const std::int64_t column = static_cast<std::int64_t>(vector) * kVec;
  const bf16* const x = p.x + row * p.x_stride + column;
  const bf16* const gate = p.gate + row * p.gate_stride + column;
  if constexpr (kVec > 1) {  // rows are aligned to 16 bytes then, and CTAs hold whole multiples
    const bool begins = threadIdx.x == 0 || vector == 0;
    if (begins && blockIdx.x < p.early_ctas) {
      const std::uint32_t of_cta = kMlaOutputGateThreads - threadIdx.x;
      const std::uint32_t bytes = min(p.row_vectors - vector, of_cta) *
                                  static_cast<std::uint32_t>(sizeof(Bf16Vector<kVec>));
      prefetch_l2(x, bytes);
      prefetch_l2(gate, bytes);
    }
  }

  pdl_wait();
  const auto result =
      map_pairs(load_vector<kVec>(x), load_vector<kVec>(gate),
                [](std::uint32_t values, std::uint32_t gates) { return gated(values, gates); });
  store_streaming(p.out + row * p.out_stride + column, result);
}

}  // namespace k3::cuda
