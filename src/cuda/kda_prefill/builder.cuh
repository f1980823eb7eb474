// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/async_copy.cuh"
#include "cuda/common/bulk_copy.cuh"
#include "cuda/kda_prefill/inputs.cuh"
#include "cuda/kda_prefill/inverse.cuh"
#include "cuda/kda_prefill/wide_range.cuh"

/// The token-parallel half of a prefill: one CTA of eight warps makes the ChunkFactors of a (chunk,
/// value head). G is the cumulative log2 decay of the chunk, per channel; a block has 16 rows.
///
///   1. q, k, g, beta into registers (inputs.cuh); G within each block; sums over channels for the
///      norms.
///   2. exp(G_i - G_j) = exp(G_i - R) exp(R - G_j), with R the G of row 7 of the block of i: row
///      operands k and q times exp(G_i - R), column operands k exp(R - G_j) for its own and each
///      later block. The operands of the chain, q exp(G), k exp(G_last - G) and gamma, go out, k
///      exp(G) to shared memory. Where a block's decay leaves the range of that (a factor above
///      2^60), the chunk takes the way of wide_range.cuh instead.
///   3. L and the output matrix: products of row and column operands, 20 of 16 x 16.
///   4. X = (I + L)^-1 (inverse.cuh), M = X diag(beta) in two parts; v arrives meanwhile.
///   5. -M (k exp(G)) and M v; bulk copies to the workspace.
///
/// Rows past the sequence have k = q = v = 0, beta = 0 and no decay.
///
/// Where cu_seqlens cuts several sequences, one more CTA orders them for the chain.
///
/// Shared memory: BuilderShared, whose operands of step 2 give way to v and M. Barriers:
/// __syncthreads only.
namespace k3::cuda {

/// Row of a block to which its factors refer.
inline constexpr int kReferenceRow = 7;
/// Largest exponent of a factor exp(R - G) or exp(G - R). Products above the diagonal may overflow;
/// they count for nothing.
inline constexpr float kMaxExponent = 60.0F;

/// Decays of steps become sums from the block's first row on; totals and middles into shared
/// memory. Returns whether all factors are in range.
__device__ inline bool accumulate_in_block(float2 (&G)[kBlock], const BuilderTask& task,
                                           BuilderShared& shared) {
#pragma unroll
  for (int i = 1; i < kBlock; ++i) G[i] = G[i - 1] + G[i];
  const float2 middle = G[kReferenceRow];
  const float2 total = G[kBlock - 1];
  *reinterpret_cast<float2*>(&shared.totals[task.block][task.channel]) = total;
  *reinterpret_cast<float2*>(&shared.middles[task.block][task.channel]) = middle;
  return middle.x - total.x <= kMaxExponent && middle.y - total.y <= kMaxExponent &&
         G[0].x - middle.x <= kMaxExponent && G[0].y - middle.y <= kMaxExponent;
}

/// Step 2.
__device__ inline void write_operands(const std::uint32_t (&q)[kBlock],
                                      const std::uint32_t (&k)[kBlock], const float2 (&G)[kBlock],
                                      const RowScales& scales, const BuilderTask& task,
                                      BuilderShared& shared) {
  float2 reference[kBlocks];  // G of the blocks' reference rows
  float2 last = {0.0F, 0.0F};
  float2 own = {0.0F, 0.0F};
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    reference[b] = last + *reinterpret_cast<const float2*>(&shared.middles[b][task.channel]);
    last = last + *reinterpret_cast<const float2*>(&shared.totals[b][task.channel]);
    if (b == task.block) own = reference[b];
  }
  float2 to_block[kBlocks];
#pragma unroll
  for (int b = 1; b < kBlocks; ++b) to_block[b] = exp2_approx(reference[b] - own);
  const float2 from_start = exp2_approx(own);
  const float2 to_end = exp2_approx(last - own);
  if (task.block == 0)
    *reinterpret_cast<float2*>(&task.factors->gamma[task.channel]) = exp2_approx(last);

#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const int row = task.first_row + i;
    const float2 query = unpack_bf16(q[i]) * __shfl_sync(kFullWarp, scales.q, 2 * i);
    const float2 key = unpack_bf16(k[i]) * __shfl_sync(kFullWarp, scales.k, 2 * i);
    const float2 since = exp2_approx(G[i] - G[kReferenceRow]);
    const float2 until = exp2_approx(G[kReferenceRow] - G[i]);
    const float2 row_key = key * since;
    const float2 row_query = query * since;
    const float2 column_key = key * until;
    tile_pair<FullTile>(shared.keys, row, task.channel) = pack_bf16(row_key);
    tile_pair<FullTile>(shared.queries, row, task.channel) = pack_bf16(row_query);
    tile_pair<FullTile>(shared.k_decayed, row, task.channel) = pack_bf16(row_key * from_start);
    tile_pair<FullTile>(task.factors->q_decayed, row, task.channel) =
        pack_bf16(row_query * from_start);
    tile_pair<FullTile>(task.factors->k_remaining, row, task.channel) =
        pack_bf16(column_key * to_end);
    const int j = task.block;
    tile_pair<ColumnTile>(shared.columns[j * (j + 1) / 2 + j], i, task.channel) =
        pack_bf16(column_key);
#pragma unroll
    for (int b = 1; b < kBlocks; ++b)
      if (b > j)
        tile_pair<ColumnTile>(shared.columns[b * (b + 1) / 2 + j], i, task.channel) =
            pack_bf16(column_key * to_block[b]);
  }
}

/// A block of 16 x 16 of L or of the output matrix, by its place.
struct BlockPlace {
  int i;
  int j;
  __device__ int tile() const { return i * (i + 1) / 2 + j; }
};

/// The blocks of warp w % 4: ten among four warps, two of them twice.
__device__ inline BlockPlace block_of(int warp, int n) {
  switch (warp % 4) {
    case 0:
      return {3, n};
    case 1:
      return {2, n};
    case 2:
      return {1, n % 2};
    default:
      return {n % 2 == 0 ? 3 : 0, n % 2 == 0 ? 3 : 0};
  }
}

/// Two products of 16 x 8, side by side.
struct BlockSums {
  FragmentC half[2];
};

/// Block of L or of the output matrix goes where it belongs.
__device__ inline void store_block(const BlockSums& sums, BlockPlace place, bool is_lower,
                                   const BuilderTask& task, BuilderShared& shared) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int row = kBlock * place.i + task.lane / 4 + 8 * upper;
      const int column = kBlock * place.j + 8 * half + 2 * (task.lane % 4);
      const float x = sums.half[half].c[2 * upper];
      const float y = sums.half[half].c[2 * upper + 1];
      if (is_lower) {
        const float beta = shared.beta[row];
        *reinterpret_cast<float2*>(&shared.lower[row][column]) = {beta * x, beta * y};
      } else {
        tile_pair<ChunkTile>(task.factors->output_matrix, row, column) =
            pack_bf16(column <= row ? x : 0.0F, column + 1 <= row ? y : 0.0F);
      }
    }
}

/// Zeros to the blocks of the output matrix above the diagonal.
__device__ inline void clear_upper_blocks(const BuilderTask& task) {
  constexpr int kPieces = kChunk * kChunk / 8;
  for (int at = static_cast<int>(threadIdx.x); at < kPieces; at += kBuilderThreads) {
    const int row = at / 8;
    const int column = 8 * (at % 8);
    if (column / kBlock > row / kBlock)
      *reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(task.factors->output_matrix) +
                                ChunkTile::offset(row, column)) = uint4{0, 0, 0, 0};
  }
}

/// Step 3: four warps have L, four the output matrix, three blocks each.
__device__ inline void make_matrices(const BuilderTask& task, BuilderShared& shared) {
  constexpr int kEach = 3;
  const bool is_lower = task.warp < 4;
  const RowsLane<kHalf> rows(shared_address(is_lower ? shared.keys : shared.queries), task.lane);
  const ColumnsLane<kHeadDim> columns(shared_address(shared.columns), task.lane);
  BlockPlace place[kEach];
#pragma unroll
  for (int n = 0; n < kEach; ++n) place[n] = block_of(task.warp, n);
  BlockSums sums[kEach];
#pragma unroll
  for (int d = 0; d < kHeadDim; d += 16)
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      std::uint32_t b[4];
      load_b_of_transpose(b, columns, kBlock * place[n].tile(), d);
      multiply_add(sums[n].half[0], sums[n].half[1],
                   load_a(rows, d / kHalf * kChunk + kBlock * place[n].i, d % kHalf), b);
    }
#pragma unroll
  for (int n = 0; n < kEach; ++n) store_block(sums[n], place[n], is_lower, task, shared);
  clear_upper_blocks(task);
}

/// v, on its way to shared memory; zeros past the sequence.
__device__ inline void fetch_values(const KdaPrefillProblem& p, const BuilderTask& task, bf16* to) {
  const bf16* const first = p.v + task.batch * p.v_strides.batch + task.token * p.v_strides.token +
                            task.head * p.v_strides.head;
#pragma unroll
  for (int n = 0; n < kChunk * kHeadDim / 8 / kBuilderThreads; ++n) {
    const int piece = static_cast<int>(threadIdx.x) + n * kBuilderThreads;
    const int row = piece / 16;
    const int column = 8 * (piece % 16);
    const bool exists = row < task.rows;
    copy_async_16(shared_address(to) + FullTile::offset(row, column),
                  first + (exists ? row * p.v_strides.token + column : 0), exists);
  }
}

/// M = X diag(beta) as the sum of two bf16 matrices: rounded once, M would be the worst of all
/// roundings (repeated keys with beta near 1: error ratio 0.08 instead of 0.016).
__device__ inline void store_solve(float x, float y, int row, int column, BuilderShared& shared) {
  const float2 beta = *reinterpret_cast<const float2*>(&shared.beta[column]);
  std::uint32_t high;
  std::uint32_t low;
  split_pair({x * beta.x, y * beta.y}, high, low);
  tile_pair<ChunkTile>(shared.queries, row, column) = high;
  tile_pair<ChunkTile>(shared.queries + kChunk * kChunk, row, column) = low;
}

/// Step 4. Blocks of M above the diagonal stay unset.
__device__ inline void make_solve(const BuilderTask& task, BuilderShared& shared) {
  LowerMatrix& x = shared.lower;
  if (task.warp < kBlocks) invert_diagonal_block(x, kBlock * task.warp, task.lane);
  __syncthreads();
  if (task.warp < 2) join_diagonal_blocks(x, 32 * task.warp, task.lane);
  __syncthreads();
  const FragmentC joined = join_halves(x, task.warp, task.lane);
#pragma unroll
  for (int upper = 0; upper < 2; ++upper)
    store_solve(joined.c[2 * upper], joined.c[2 * upper + 1],
                32 + 16 * (task.warp / 4) + task.lane / 4 + 8 * upper,
                8 * (task.warp % 4) + 2 * (task.lane % 4), shared);
  // The halves on the diagonal: 32 x 16 pairs each, of which those of the block above it are
  // skipped.
  for (int at = static_cast<int>(threadIdx.x); at < kChunk * 16; at += kBuilderThreads) {
    const int row = at / 16;
    const int column = row / 32 * 32 + 2 * (at % 16);
    if (column / kBlock > row / kBlock) continue;
    const float2 pair = *reinterpret_cast<const float2*>(&x[row][column]);
    store_solve(pair.x, pair.y, row, column, shared);
  }
}

/// Step 5: four warps take 32 columns each of M (k exp(G)), the others of M v, and leave the result
/// where the operand was.
__device__ inline void multiply_solve(const BuilderTask& task, BuilderShared& shared) {
  const bool is_w = task.warp < 4;
  const int column0 = 32 * (task.warp % 4);
  const RowsLane<kHalf> half(
      shared_address(is_w ? shared.k_decayed : shared.keys) + column0 / kHalf * kHalfTileBytes,
      task.lane);
  const RowsLane<kChunk> high(shared_address(shared.queries), task.lane);
  const RowsLane<kChunk> low(shared_address(shared.queries + kChunk * kChunk), task.lane);
  const std::uint32_t sign = is_w ? 0x80008000U : 0U;
  std::uint32_t b[kBlocks][2][4];
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
#pragma unroll
    for (int n = 0; n < 2; ++n) load_b(b[j][n], half, kBlock * j, column0 % kHalf + 16 * n);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    FragmentC c[4];
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      const FragmentA m_low = load_a(low, kBlock * i, kBlock * j);
      const FragmentA m_high = load_a(high, kBlock * i, kBlock * j);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        multiply_add(c[2 * n], c[2 * n + 1], m_low, b[j][n]);
        multiply_add(c[2 * n], c[2 * n + 1], m_high, b[j][n]);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      FragmentA rounded = as_operand(c[2 * n], c[2 * n + 1]);
#pragma unroll
      for (std::uint32_t& pair : rounded.a) pair ^= sign;
      store_a(rounded, half, kBlock * i, column0 % kHalf + 16 * n);
    }
  }
}

/// Sets all of the task but what the thread's number says. False for a slot without tokens.
__device__ inline bool find_task(const KdaPrefillProblem& p, const PrefillPlan& plan, unsigned cta,
                                 BuilderTask& task) {
  task.head = static_cast<int>(cta % p.HV);
  task.key_head = task.head / (p.HV / p.H);
  const std::int64_t slot = cta / p.HV;
  const Chunk chunk = device_chunk_of_slot(p, slot);
  task.batch = chunk.batch;
  task.token = chunk.token;
  task.rows = chunk.rows;
  task.factors = plan.factors + slot * p.HV + task.head;
  return task.rows > 0;
}

__global__ __launch_bounds__(kBuilderThreads, 2) void kda_prefill_builder_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
  extern __shared__ __align__(1024) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<BuilderShared*>(dynamic_shared);
  BuilderTask task;
  pdl_wait();
  if (plan.longest != nullptr && blockIdx.x == 0) {
    order_sequences(p, plan, *reinterpret_cast<OrderShared<kBuilderThreads>*>(dynamic_shared));
    return;
  }
  if (!find_task(p, plan, blockIdx.x - (plan.longest != nullptr ? 1U : 0U), task)) return;

  std::uint32_t q[kBlock];
  std::uint32_t k[kBlock];
  float2 G[kBlock];
  load_gates(p, task, G);
  load_pairs(p.k, p.k_strides, task, task.key_head, k);
  load_pairs(p.q, p.q_strides, task, task.key_head, q);
  if (threadIdx.x < kChunk)
    shared.beta[threadIdx.x] = load_beta(p, task, static_cast<int>(threadIdx.x));
  activate_gates(p, task, G);
  const bool in_range = accumulate_in_block(G, task, shared);
  if (p.qk_l2norm) {
    const float of_q = sum_of_rows(q, q, task.lane);
    const float of_k = sum_of_rows(k, k, task.lane);
    if (task.lane % 2 == 0) {
      shared.sums[0][task.first_row + task.lane / 2][task.warp % 2] = of_q;
      shared.sums[1][task.first_row + task.lane / 2][task.warp % 2] = of_k;
    }
  }
  if (__syncthreads_and(static_cast<int>(in_range)) != 0) {
    write_operands(q, k, G, row_scales(p, task, shared), task, shared);
    __syncthreads();
    make_matrices(task, shared);
  } else {
    make_wide_range_factors(p, task, shared);
  }
  __syncthreads();
  fetch_values(p, task, shared.keys);
  make_solve(task, shared);
  wait_for_async_copies();
  __syncthreads();
  multiply_solve(task, shared);
  publish_to_bulk_copies();
  __syncthreads();
  pdl_launch_dependents();
  if (threadIdx.x == 0) {
    bulk_store(task.factors->minus_w, shared.k_decayed, sizeof(shared.k_decayed));
    bulk_store(task.factors->u, shared.keys, sizeof(shared.keys));
    wait_until_bulk_stores_have_read();
  }
}

}  // namespace k3::cuda
