// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/kda_prefill/chain.cuh"

/// Products of a warp with its 16 value channels of the state, by `mma.sync`.
namespace k3::cuda {

/// sums += S^T times the transpose of a [64 tokens x 128 keys] tile, the two keys of whose pairs
/// have changed places where kSwaps.
template <bool kSwaps = false>
__device__ void multiply_state(const ChainState& S, std::uint32_t tile, int lane,
                               ChainTokens& sums) {
  const ColumnsLane<kHalf> columns(tile, lane);
  const auto pairs = [](const FragmentC& c) -> FragmentC {
    if constexpr (kSwaps) return {c.c[1], c.c[0], c.c[3], c.c[2]};
    return c;
  };
#pragma unroll
  for (int k = 0; k < kHeadDim; k += 16) {
    const FragmentA a = as_operand(pairs(S[k / 8]), pairs(S[k / 8 + 1]));
#pragma unroll
    for (int t = 0; t < kChunk / 16; ++t) {
      std::uint32_t b[4];
      load_b_of_transpose(b, columns, k / kHalf * kChunk + 16 * t, k % kHalf);
      multiply_add(sums[2 * t], sums[2 * t + 1], a, b);
    }
  }
}

/// sums += N times the transpose of a [64 x 64] tile, whose blocks of 16 above the diagonal are
/// taken for zeros.
__device__ inline void multiply_lower(const ChainTokensOperand& N, std::uint32_t tile, int lane,
                                      ChainTokens& sums) {
  const ColumnsLane<kChunk> columns(tile, lane);
#pragma unroll
  for (int j = 0; j < kChunk / 16; ++j)
#pragma unroll
    for (int t = j; t < kChunk / 16; ++t) {
      std::uint32_t b[4];
      load_b_of_transpose(b, columns, 16 * t, 16 * j);
      multiply_add(sums[2 * t], sums[2 * t + 1], N[j], b);
    }
}

/// S = S diag(gamma), with the keys as ChainStates<kRun> has them.
template <int kRun>
__device__ void decay_state(const float* gamma, int lane, ChainState& S) {
#pragma unroll
  for (int run = 0; run < kHeadDim / (4 * kRun); ++run)
#pragma unroll
    for (int pair = 0; pair < kRun / 2; ++pair) {
      const float2 decay =
          *reinterpret_cast<const float2*>(gamma + 4 * kRun * run + kRun * (lane % 4) + 2 * pair);
      float(&c)[4] = S[chain_tile<kRun>(run, pair)].c;
      c[0] *= decay.x;
      c[1] *= decay.y;
      c[2] *= decay.x;
      c[3] *= decay.y;
    }
}

/// S += N K
__device__ inline void update_state(const ChainTokensOperand& N, std::uint32_t tile, int lane,
                                    ChainState& S) {
  const RowsLane<kHalf> rows(tile, lane);
#pragma unroll
  for (int j = 0; j < kChunk / 16; ++j)
#pragma unroll
    for (int k = 0; k < kHeadDim; k += 16) {
      std::uint32_t b[4];
      load_b(b, rows, k / kHalf * kChunk + 16 * j, k % kHalf);
      multiply_add(S[k / 8], S[k / 8 + 1], N[j], b);
    }
}

}  // namespace k3::cuda
