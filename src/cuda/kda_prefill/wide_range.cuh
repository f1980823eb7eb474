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

/// The thread's part of a chunk.
struct LevelRows {
  Bf16Quad q[kRows];
  Bf16Quad k[kRows];
  float4 G[kRows];
  RowScales scales;
};

/// Of rows of other warps, shared.totals holds the G of the first ones.
template <int kLevel>
__device__ void write_level(const LevelRows& rows, const BuilderTask& task, BuilderShared& shared) {
  float4 border = {};
  if constexpr (kLevel >= kRows) {
    constexpr int kWarps = kLevel / kRows;
    border = shared.totals[(task.warp & ~(2 * kWarps - 1)) + kWarps][task.lane];
  }
  const ThreadQuads at(task);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool is_query = ((task.first_row + i) & kLevel) != 0;
    if constexpr (kLevel < kRows) border = rows.G[(i & ~(2 * kLevel - 1)) + kLevel];
    const float4 factor = exp2_approx(is_query ? rows.G[i] - border : border - rows.G[i]);
    const float k_scale = rows.scales.k_of(i);
    const float q_scale = rows.scales.q_of(i);
    at.of(shared.keys, i) = narrow(widen(rows.k[i]) * k_scale * factor);
    if (is_query) at.of(shared.queries, i) = narrow(widen(rows.q[i]) * q_scale * factor);
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
__device__ void multiply_level(const BuilderTask& task, BuilderShared& shared) {
  int row0 = 0;
  int column0 = 0;
  if (!level_tile<kLevel>(task.warp, row0, column0)) return;
  FragmentC lower;
  FragmentC output;
#pragma unroll 1
  for (int d = 0; d < kHeadDim; d += 32) {
    // Two steps of 16 channels of the eight columns: pieces d / 8 .. + 3 of their rows.
    const int at = d / kHalf * kHalfTileBytes;
    const std::uint32_t key_half = shared_address(shared.keys) + at;
    const std::uint32_t query_half = shared_address(shared.queries) + at;
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
__device__ void run_levels(const LevelRows& rows, const BuilderTask& task, BuilderShared& shared) {
  write_level<kLevel>(rows, task, shared);
  __syncthreads();
  multiply_level<kLevel>(task, shared);
  __syncthreads();
  if constexpr (kLevel > 1) run_levels<kLevel / 2>(rows, task, shared);
}

/// The output matrix as it is before the levels: its diagonal and zeros.
__device__ inline void start_output_matrix(const LevelRows& rows, const BuilderTask& task) {
  auto* const matrix = reinterpret_cast<std::byte*>(task.factors->output_matrix);
  for (int at = static_cast<int>(threadIdx.x); at < kChunk * kChunk / 8; at += kBuilderThreads)
    reinterpret_cast<uint4*>(matrix)[at] = uint4{0, 0, 0, 0};
  float products[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) products[i] = t128_group(widen(rows.q[i]), widen(rows.k[i]));
  const float sum = sum_of_rows(products, task.lane);
  __syncthreads();
  const int row = task.first_row + task.lane / 4;
  if (task.lane % 4 == 0)
    *reinterpret_cast<bf16*>(matrix + ChunkTile::offset(row, row)) =
        narrow(rows.scales.q * rows.scales.k * sum);
}

/// The operands of the chain. The keys stand where no factor is to follow.
__device__ inline void write_chain_operands(const LevelRows& rows, float4 last,
                                            const BuilderTask& task, BuilderShared& shared) {
  const ThreadQuads at(task);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float4 decay = exp2_approx(rows.G[i]);
    const float4 key = widen(rows.k[i]) * rows.scales.k_of(i);
    const float4 query = widen(rows.q[i]) * rows.scales.q_of(i);
    at.of(shared.keys, i) = narrow(key * decay);
    at.of(task.factors->q_decayed, i) = narrow(query * decay);
    at.of(task.factors->k_remaining, i) = narrow(key * exp2_approx(last - rows.G[i]));
  }
  const std::uint32_t minus_one = pack_bf16(-1.0F, -1.0F);
  *reinterpret_cast<uint4*>(&shared.minus_from_start[task.warp / 2][task.channel]) = {
      minus_one, minus_one, minus_one, minus_one};
  if (task.warp == 0)
    *reinterpret_cast<float4*>(&task.factors->gamma[task.channel]) = exp2_approx(last);
}

/// After accumulate_in_warp, whose totals it takes over. By itself, so that the common way keeps
/// its registers.
__device__ __noinline__ void make_wide_range_factors(const KdaPrefillProblem& p, BuilderTask task,
                                                     BuilderShared& shared) {
  LevelRows rows;
  load_rows(p.q, p.q_strides, task, task.key_head, rows.q);
  load_rows(p.k, p.k_strides, task, task.key_head, rows.k);
  load_gates(p, task, rows.G);
  activate_gates(p, task, rows.G);
  rows.scales = {p.scale, 1.0F};
  if (p.qk_l2norm) {
    rows.scales.k = inverse_norms(task.lane, [&](int i) { return rows.k[i]; });
    rows.scales.q *= inverse_norms(task.lane, [&](int i) { return rows.q[i]; });
  }
  float4 before = {};
  float4 last = {};
#pragma unroll
  for (int w = 0; w < kBuilderWarps; ++w) {
    if (w == task.warp) before = last;
    last = last + shared.totals[w][task.lane];
  }
  rows.G[0] = before + rows.G[0];
#pragma unroll
  for (int i = 1; i < kRows; ++i) rows.G[i] = rows.G[i - 1] + rows.G[i];
  __syncthreads();  // everyone has read the totals
  shared.totals[task.warp][task.lane] = rows.G[0];
  start_output_matrix(rows, task);
  __syncthreads();
  run_levels<32>(rows, task, shared);
  write_chain_operands(rows, last, task, shared);
}

}  // namespace k3::cuda
