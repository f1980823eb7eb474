// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/divider.h"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/situ_and_mul/activation.cuh"
#include "cuda/situ_and_mul/traits.cuh"

/// out = beta tanh(g / beta) sigmoid(g) * soft(u). One thread makes one vector of one row.
///
/// Memory-bound, but not by much: at 16 special-function results a clock and SM, four of them per
/// output would take three quarters of the time that the bytes take.
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
  SituCaps caps;
};

template <class Traits>
__device__ std::uint32_t situ_and_mul_pair(std::uint32_t g, std::uint32_t u,
                                           const SituAndMulParams& p) {
  constexpr bool kFour = Traits::kBetaIsFour;
  constexpr bool kSoft = Traits::kHasSoftUp;
  return pack_bf16(situ<kFour, kSoft>(low_half(g), low_half(u), p.caps),
                   situ<kFour, kSoft>(high_half(g), high_half(u), p.caps));
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
