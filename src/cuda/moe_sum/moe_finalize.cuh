// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/bf16_vector.cuh"
#include "cuda/common/divider.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"

/// A CTA makes a part of one token's columns, a thread a vector at a time. The CTA's threads read
/// the token's indices and weights once, into shared memory: if every thread asked for them, the
/// few lines that hold them would be what all wait for. A thread asks for the rows of kBatch slots
/// before it adds the first.
namespace k3::cuda {

inline constexpr int kMoeFinalizeThreads = 128;
inline constexpr int kMoeFinalizeSlots = 64;  ///< in shared memory at once

struct MoeFinalizeParams {
  const bf16* experts_out;   ///< [P, H]
  const std::int32_t* idx;   ///< [tokens, topk], dense
  const void* topk_weights;  ///< [tokens, topk]
  bf16* out;                 ///< [tokens, H]
  std::int64_t num_rows;     ///< P
  std::int64_t experts_out_stride;
  std::int64_t weights_stride;
  std::int64_t out_stride;
  int topk;
  int row_vectors;      ///< H in vectors
  std::uint32_t parts;  ///< CTAs a token
  Divider by_parts;
  bool weights_are_f32;
};

struct MoeSlot {
  std::int64_t row;  ///< where it begins in experts_out; negative: none
  float weight;
};

__device__ inline MoeSlot load_slot(const MoeFinalizeParams& p, std::int64_t token, int slot) {
  const std::int64_t row = p.idx[token * p.topk + slot];
  const std::int64_t at = token * p.weights_stride + slot;
  const float weight = p.weights_are_f32
                           ? static_cast<const float*>(p.topk_weights)[at]
                           : low_half(static_cast<const std::uint16_t*>(p.topk_weights)[at]);
  const bool exists = row >= 0 && row < p.num_rows;
  return {exists ? row * p.experts_out_stride : -1, weight};
}

/// sums += the first `count` slots, one after the other.
template <int kVec, int kBatch>
__device__ void add_slots(const MoeSlot* slots, int count, const bf16* column,
                          float (&sums)[kVec]) {
  for (int first = 0; first < count; first += kBatch) {
    Bf16Vector<kVec> rows[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (first + i < count && slots[first + i].row >= 0)
        rows[i] = load_vector<kVec>(column + slots[first + i].row);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= count || slots[first + i].row < 0) continue;
      float x[kVec];
      unpack(rows[i], x);
#pragma unroll
      for (int c = 0; c < kVec; ++c) sums[c] = fmaf(slots[first + i].weight, x[c], sums[c]);
    }
  }
}

template <int kVec, int kBatch>
__global__ __launch_bounds__(kMoeFinalizeThreads) void moe_finalize_kernel(
    const __grid_constant__ MoeFinalizeParams p) {
  __shared__ MoeSlot slots[kMoeFinalizeSlots];
  const std::uint32_t token = p.by_parts.quotient(blockIdx.x);
  const auto part = static_cast<int>(blockIdx.x - token * p.parts);
  pdl_launch_dependents();
  // The router wrote them, some kernels back.
  if (threadIdx.x == 0 && p.topk > 0) prefetch_l2(p.idx + std::int64_t{token} * p.topk);

  pdl_wait();
  const int step = static_cast<int>(p.parts) * kMoeFinalizeThreads;
  for (int begin = part * kMoeFinalizeThreads; begin < p.row_vectors; begin += step) {
    const int vector = begin + static_cast<int>(threadIdx.x);
    const std::int64_t column = std::int64_t{vector} * kVec;
    float sums[kVec] = {};
    for (int first = 0; first < p.topk; first += kMoeFinalizeSlots) {
      const int count = min(kMoeFinalizeSlots, p.topk - first);
      __syncthreads();  // all are done with the slots before
      if (threadIdx.x < count)
        slots[threadIdx.x] = load_slot(p, token, first + static_cast<int>(threadIdx.x));
      __syncthreads();  // the slots are there
      if (vector < p.row_vectors)
        add_slots<kVec, kBatch>(slots, count, p.experts_out + column, sums);
    }
    if (vector < p.row_vectors) store_vector(p.out + token * p.out_stride + column, pack(sums));
  }
}

}  // namespace k3::cuda
