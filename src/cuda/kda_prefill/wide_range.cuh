// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/kda_prefill/inputs.cuh"

/// Steps 2 and 3 of the builder for any gates, minus infinity included: no factor exceeds 1. Of
/// rows j < i let m be the highest bit in which they differ: then i has it and j has not, and
/// between them lies the row r with the bits of i above m, bit m, and zeros below.
///
///   exp(G_i - G_j) = exp(G_i - G_r) exp(G_r - G_j)
///
/// At each of six levels m = 32, 16, 8, 4, 2, 1 a row is either query (bit m set) or key, and its
/// operand is k (and q) times exp(-|G - G_r|); of the products of a level's tiles its pairs count.
/// About twice the work of the way with one reference a block.
namespace k3::cuda {

/// Two tiles each of keys and queries, which the levels use in turns.
struct LevelBuffers {
  bf16* keys[2];
  bf16* queries[2];
};

/// The thread's part of a chunk.
struct LevelRows {
  std::uint32_t q[kBlock];
  std::uint32_t k[kBlock];
  float2 G[kBlock];
  RowScales scales;
};

template <int kLevel>
__device__ void write_level(const LevelRows& rows, const BuilderTask& task,
                            const BuilderShared& shared, bf16* keys, bf16* queries) {
  float2 border = {};
  if constexpr (kLevel >= kBlock) {
    const int block = kLevel == 32 ? 2 : task.block | 1;
    border = *reinterpret_cast<const float2*>(&shared.middles[block][task.channel]);
  }
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const int row = task.first_row + i;
    const bool is_query = (row & kLevel) != 0;
    if constexpr (kLevel < kBlock) border = rows.G[(i & ~(2 * kLevel - 1)) + kLevel];
    const float2 factor = exp2_approx(is_query ? rows.G[i] - border : border - rows.G[i]);
    const float k_scale = __shfl_sync(kFullWarp, rows.scales.k, 2 * i);
    const float q_scale = __shfl_sync(kFullWarp, rows.scales.q, 2 * i);
    tile_pair<FullTile>(keys, row, task.channel) =
        pack_bf16(unpack_bf16(rows.k[i]) * k_scale * factor);
    if (is_query)
      tile_pair<FullTile>(queries, row, task.channel) =
          pack_bf16(unpack_bf16(rows.q[i]) * q_scale * factor);
  }
}

/// The warp's tile of a level: 16 rows from row0, 8 columns from column0; false where it has none.
template <int kLevel>
__device__ bool level_tile(int warp, int& row0, int& column0) {
  if constexpr (kLevel == 32) {
    row0 = 32 + 16 * (warp / 4);
    column0 = 8 * (warp % 4);
    return true;
  } else if constexpr (kLevel == 16) {
    row0 = 16 + 32 * (warp / 2);
    column0 = row0 - 16 + 8 * (warp % 2);
    return warp < 4;
  } else {
    row0 = 16 * (warp / 2);
    column0 = row0 + 8 * (warp % 2);
    return kLevel != 8 || warp % 2 == 0;
  }
}

/// Products of a level's operands into L and the output matrix, where the pair is of this level.
template <int kLevel>
__device__ void multiply_level(const BuilderTask& task, BuilderShared& shared, const bf16* keys,
                               const bf16* queries) {
  int row0 = 0;
  int column0 = 0;
  if (!level_tile<kLevel>(task.warp, row0, column0)) return;
  FragmentC lower;
  FragmentC output;
#pragma unroll 1
  for (int d = 0; d < kHeadDim; d += 32) {
    // Two steps of 16 channels of the eight columns: pieces d / 8 .. + 3 of their rows.
    const int at = d / kHalf * kHalfTileBytes;
    const std::uint32_t key_half = shared_address(keys) + at;
    const std::uint32_t query_half = shared_address(queries) + at;
    std::uint32_t b[4];
    load_matrices(b, key_half + SwizzledTile<kHalf>::offset(column0 + task.lane % 8,
                                                            d % kHalf + 8 * (task.lane / 8)));
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const int column = d % kHalf + 16 * step;
      multiply_add(lower, load_a(RowsLane<kHalf>(key_half, task.lane), row0, column), b[2 * step],
                   b[2 * step + 1]);
      multiply_add(output, load_a(RowsLane<kHalf>(query_half, task.lane), row0, column),
                   b[2 * step], b[2 * step + 1]);
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int i = row0 + task.lane / 4 + 8 * (c / 2);
    const int j = column0 + 2 * (task.lane % 4) + c % 2;
    const bool is_here = (i & kLevel) != 0 && ((i ^ j) & ~(kLevel - 1)) == kLevel;
    if (!is_here) continue;
    shared.lower[i][j] = shared.beta[i] * lower.c[c];
    *reinterpret_cast<bf16*>(reinterpret_cast<std::byte*>(task.factors->output_matrix) +
                             ChunkTile::offset(i, j)) = narrow(output.c[c]);
  }
}

template <int kLevel>
__device__ void run_levels(const LevelRows& rows, const BuilderTask& task, BuilderShared& shared,
                           const LevelBuffers& buffers, int turn) {
  write_level<kLevel>(rows, task, shared, buffers.keys[turn], buffers.queries[turn]);
  __syncthreads();
  multiply_level<kLevel>(task, shared, buffers.keys[turn], buffers.queries[turn]);
  if constexpr (kLevel > 1) run_levels<kLevel / 2>(rows, task, shared, buffers, turn ^ 1);
}

/// The output matrix as it is before the levels: its diagonal and zeros.
__device__ inline void start_output_matrix(const LevelRows& rows, const BuilderTask& task,
                                           BuilderShared& shared) {
  auto* const matrix = reinterpret_cast<std::byte*>(task.factors->output_matrix);
  for (int at = static_cast<int>(threadIdx.x); at < kChunk * kChunk / 8; at += kBuilderThreads)
    reinterpret_cast<uint4*>(matrix)[at] = uint4{0, 0, 0, 0};
  const int row = task.first_row + task.lane / 2;
  const float half = sum_of_rows(rows.q, rows.k, task.lane);
  if (task.lane % 2 == 0) shared.sums[0][row][task.warp % 2] = half;
  __syncthreads();
  if (task.warp % 2 == 0 && task.lane % 2 == 0)
    *reinterpret_cast<bf16*>(matrix + ChunkTile::offset(row, row)) =
        narrow(rows.scales.q * rows.scales.k * (shared.sums[0][row][0] + shared.sums[0][row][1]));
}

/// The operands of the chain. The keys stand where no factor is to follow.
__device__ inline void write_chain_operands(const LevelRows& rows, float2 last,
                                            const BuilderTask& task, BuilderShared& shared) {
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const int row = task.first_row + i;
    const float2 decay = exp2_approx(rows.G[i]);
    const float2 key = unpack_bf16(rows.k[i]) * __shfl_sync(kFullWarp, rows.scales.k, 2 * i);
    const float2 query = unpack_bf16(rows.q[i]) * __shfl_sync(kFullWarp, rows.scales.q, 2 * i);
    tile_pair<FullTile>(shared.keys, row, task.channel) = pack_bf16(key * decay);
    tile_pair<FullTile>(task.factors->q_decayed, row, task.channel) = pack_bf16(query * decay);
    tile_pair<FullTile>(task.factors->k_remaining, row, task.channel) =
        pack_bf16(key * exp2_approx(last - rows.G[i]));
  }
  *reinterpret_cast<uint2*>(&shared.from_start[task.block][task.channel]) = {pack_bf16(1.0F, 1.0F),
                                                                             pack_bf16(1.0F, 1.0F)};
  if (task.block == 0)
    *reinterpret_cast<float2*>(&task.factors->gamma[task.channel]) = exp2_approx(last);
}

/// After accumulate_in_block, whose totals and sums it takes over. By itself, so that the common
/// way keeps its registers.
__device__ __noinline__ void make_wide_range_factors(const KdaPrefillProblem& p, BuilderTask task,
                                                     BuilderShared& shared) {
  LevelRows rows;
  rows.scales = row_scales(p, task, shared);
  load_pairs(p.q, p.q_strides, task, task.key_head, rows.q);
  load_pairs(p.k, p.k_strides, task, task.key_head, rows.k);
  load_gates(p, task, rows.G);
  activate_gates(p, task, rows.G);
  float2 before = {0.0F, 0.0F};
  float2 last = {0.0F, 0.0F};
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    if (b == task.block) before = last;
    last = last + *reinterpret_cast<const float2*>(&shared.totals[b][task.channel]);
  }
  rows.G[0] = before + rows.G[0];
#pragma unroll
  for (int i = 1; i < kBlock; ++i) rows.G[i] = rows.G[i - 1] + rows.G[i];
  __syncthreads();  // everyone has its scales
  *reinterpret_cast<float2*>(&shared.middles[task.block][task.channel]) = rows.G[0];
  start_output_matrix(rows, task, shared);
  __syncthreads();
  const LevelBuffers buffers = {{shared.keys, shared.columns}, {shared.queries, shared.values}};
  run_levels<32>(rows, task, shared, buffers, 0);
  write_chain_operands(rows, last, task, shared);
}

}  // namespace k3::cuda
