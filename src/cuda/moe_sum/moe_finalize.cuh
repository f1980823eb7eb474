// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/bf16_vector.cuh"
#include "cuda/common/divider.h"
#include "cuda/common/pdl.cuh"

/// One thread makes one vector of one token. It asks for the indices and weights of kBatch slots,
/// then for their rows, before it adds the first.
namespace k3::cuda {

/// A block of tokens and columns of the problem, small enough for 32-bit vector indices.
struct MoeFinalizeParams {
  const bf16* experts_out;   ///< [P, columns]
  const std::int32_t* idx;   ///< [tokens, topk], dense
  const void* topk_weights;  ///< [tokens, topk]
  bf16* out;                 ///< [tokens, columns]
  std::int64_t num_rows;     ///< P
  std::int64_t experts_out_stride;
  std::int64_t weights_stride;
  std::int64_t out_stride;
  int topk;
  bool weights_are_f32;
  std::uint32_t row_vectors;  ///< columns of a vector each
  std::uint32_t num_vectors;  ///< tokens * row_vectors, below 2^31
  Divider by_row_vectors;
};

__device__ inline float load_weight(const MoeFinalizeParams& p, std::int64_t at) {
  return p.weights_are_f32 ? static_cast<const float*>(p.topk_weights)[at]
                           : low_half(static_cast<const std::uint16_t*>(p.topk_weights)[at]);
}

template <int kVec, int kBatch>
__global__ void moe_finalize_kernel(const __grid_constant__ MoeFinalizeParams p) {
  pdl_launch_dependents();
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= p.num_vectors) return;
  const std::uint32_t token = p.by_row_vectors.quotient(index);
  const std::int64_t column = static_cast<std::int64_t>(index - token * p.row_vectors) * kVec;
  const std::int32_t* const idx = p.idx + static_cast<std::int64_t>(token) * p.topk;
  float sums[kVec] = {};

  pdl_wait();
  for (int first = 0; first < p.topk; first += kBatch) {
    std::int32_t rows[kBatch];
    float weights[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      rows[i] = -1;
      if (first + i >= p.topk) continue;
      rows[i] = idx[first + i];
      weights[i] = load_weight(p, token * p.weights_stride + first + i);
    }
    Bf16Vector<kVec> slots[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (rows[i] >= p.num_rows) rows[i] = -1;  // past the rows: as if dropped
      if (rows[i] >= 0)
        slots[i] = load_vector<kVec>(p.experts_out + rows[i] * p.experts_out_stride + column);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (rows[i] < 0) continue;
      float x[kVec];
      unpack(slots[i], x);
#pragma unroll
      for (int c = 0; c < kVec; ++c) sums[c] = fmaf(weights[i], x[c], sums[c]);
    }
  }
  store_vector(p.out + token * p.out_stride + column, pack(sums));
}

}  // namespace k3::cuda
