// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/bf16_vector.cuh"
#include "cuda/common/divider.h"
#include "cuda/common/packed_bf16.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/situ_and_mul/activation.cuh"

/// out = beta tanh(g / beta) sigmoid(g) * soft(u). One thread makes one vector of one row.
///
/// Memory-bound, but not by much: at 16 special-function results a clock and SM, four of them per
/// output would take three quarters of the time that the bytes take.
namespace k3::cuda {

inline constexpr int kSituAndMulThreads = 256;

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

/// @tparam kVec         elements an access: 8, 4 or 1
/// @tparam kBetaIsFour  beta is 4, as in K3: the gate then needs two special functions, not three
/// @tparam kHasSoftUp   linear_beta is given
template <int kVec, bool kBetaIsFour, bool kHasSoftUp>
__global__ __launch_bounds__(kSituAndMulThreads) void situ_and_mul_kernel(
    const __grid_constant__ SituAndMulParams p) {
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * kSituAndMulThreads + threadIdx.x;
  if (index >= p.num_vectors) return;
  const std::uint32_t row = p.by_row_vectors.quotient(index);
  const std::int64_t column = static_cast<std::int64_t>(index - row * p.row_vectors) * kVec;
  const std::int64_t in_offset = row * p.input_stride + column;
  const std::int64_t out_offset = row * p.out_stride + column;

  // Ordinary loads and streaming stores are the fastest pair: the output leaves the L2 first.
  pdl_wait();
  const auto result = map_pairs(
      load_vector<kVec>(p.gate + in_offset), load_vector<kVec>(p.up + in_offset),
      [&](std::uint32_t g, std::uint32_t u) {
        return pack_bf16(situ<kBetaIsFour, kHasSoftUp>(low_half(g), low_half(u), p.caps),
                         situ<kBetaIsFour, kHasSoftUp>(high_half(g), high_half(u), p.caps));
      });
  store_streaming(p.out + out_offset, result);
}

}  // namespace k3::cuda
