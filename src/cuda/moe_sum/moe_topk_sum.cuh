// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/bf16_vector.cuh"
#include "cuda/common/divider.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"

/// One thread makes one vector of one token. It asks for kBatch slots before it adds the first.
/// Small grids, which start as a whole while their predecessor still runs, bring what they will
/// load into the L2 meanwhile.
namespace k3::cuda {

/// A block of tokens and columns of the problem, small enough for 32-bit vector indices.
struct MoeTopkSumParams {
  const bf16* input;  ///< [tokens, topk, columns]
  bf16* out;          ///< [tokens, columns]
  std::int64_t token_stride;
  std::int64_t slot_stride;
  std::int64_t out_stride;
  int topk;
  std::uint32_t row_vectors;  ///< columns of a vector each
  std::uint32_t num_vectors;  ///< tokens * row_vectors, below 2^31
  Divider by_row_vectors;
};

/// @tparam kEarly  every CTA may start early
template <int kVec, int kBatch, bool kEarly>
__global__ void moe_topk_sum_kernel(const __grid_constant__ MoeTopkSumParams p) {
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= p.num_vectors) return;
  const std::uint32_t token = p.by_row_vectors.quotient(index);
  const std::int64_t column = static_cast<std::int64_t>(index - token * p.row_vectors) * kVec;
  const bf16* const from = p.input + token * p.token_stride + column;
  float sums[kVec] = {};
  if constexpr (kEarly) {
    constexpr std::uint32_t kLineVectors = 128 / (kVec * sizeof(bf16));
    if (index % kLineVectors == 0)
      for (int slot = 0; slot < p.topk; ++slot) prefetch_l2(from + slot * p.slot_stride);
  }

  pdl_wait();
  for (int first = 0; first < p.topk; first += kBatch) {
    Bf16Vector<kVec> slots[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (first + i < p.topk) slots[i] = load_vector<kVec>(from + (first + i) * p.slot_stride);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= p.topk) break;
      float x[kVec];
      unpack(slots[i], x);
#pragma unroll
      for (int c = 0; c < kVec; ++c) sums[c] += x[c];
    }
  }
  store_vector(p.out + token * p.out_stride + column, pack(sums));
}

}  // namespace k3::cuda
