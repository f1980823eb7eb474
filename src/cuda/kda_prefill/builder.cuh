// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/async_copy.cuh"
#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/kda_prefill/inputs.cuh"
#include "cuda/kda_prefill/inverse.cuh"
#include "cuda/kda_prefill/wide_range.cuh"

/// The token-parallel half of a prefill: one CTA of eight warps makes the ChunkFactors of a (chunk,
/// value head). G is the cumulative log2 decay of the chunk, per channel; a block has 16 rows.
///
///   1. q, k and beta to shared memory, g into registers (inputs.cuh); G within each warp's rows.
///   2. exp(G_i - G_j) = exp(G_i - R_i) exp(R_i - R_j) exp(R_j - G_j), with R the G of a row in the
///      middle of the block, rounded to a whole number: row operands k and q times exp(G - R),
///      column operands k exp(R - G), and between them powers of two, by which a bf16 number is
///      multiplied exactly. The operands of the chain, q exp(G), k exp(G_last - G) and gamma, go
///      out. Where a block's decay leaves the range of these factors, the chunk takes the way of
///      wide_range.cuh instead.
///   3. L and the output matrix: products of row and column operands, 20 of 16 x 16.
///   4. v is asked for. X = (I + L)^-1 (inverse.cuh), M = X diag(beta) in two parts.
///   5. -M (k exp(G)) and M v; bulk copies to the workspace.
///
/// Rows past the sequence have k = q = v = 0, beta = 0 and no decay. Where cu_seqlens cuts several
/// sequences, a CTA in front of the others orders them for the chain.
///
/// Shared memory: BuilderShared. Barriers: __syncthreads only.
namespace k3::cuda {

/// Largest exponents of the factors exp(G - R) and exp(R - G); gates down to -5 stay within. Then
/// what two blocks' references are apart is more than a bf16 number's exponent only if the rows
/// between them decay by 2^-15, too. Products above the diagonal may overflow; they count for
/// nothing.
inline constexpr float kMaxSince = 52.0F;
inline constexpr float kMaxUntil = 58.0F;

/// Decays of steps become sums from the warp's first row on, their totals go to shared memory.
/// Returns whether all factors are in range: R is about the G of a block's row 7, the last one of
/// the first of its two warps.
__device__ inline bool accumulate_in_warp(float4 (&G)[kRows], const BuilderTask& task,
                                          BuilderShared& shared) {
#pragma unroll
  for (int i = 1; i < kRows; ++i) G[i] = G[i - 1] + G[i];
  const float4 total = G[kRows - 1];
  shared.totals[task.warp][task.lane] = total;
  const bool is_first = task.warp % 2 == 0;
  const float4 range = is_first ? G[0] - total : total * -1.0F;
  const float most = is_first ? kMaxSince : kMaxUntil;
  return range.x <= most && range.y <= most && range.z <= most && range.w <= most;
}

/// What the thread's channels decay by, in log2.
struct ChannelDecays {
  float4 own;        ///< reference of the thread's block, from the chunk's start
  float4 own_local;  ///< from the warp's first row
  float4 last;       ///< of the whole chunk
};

/// Also writes the factors between references.
__device__ inline ChannelDecays find_references(const BuilderTask& task, BuilderShared& shared) {
  const int own_block = task.warp / 2;
  const bool is_first = task.warp % 2 == 0;
  const auto rounded = [](float x) { return rintf(x); };
  const float4(&totals)[kBuilderWarps][32] = shared.totals;
  float4 before = {};
#pragma unroll 1
  for (int w = 0; w < 2 * own_block; ++w) before = before + totals[w][task.lane];
  const float4 middle = before + totals[2 * own_block][task.lane];
  ChannelDecays decays;
  decays.own = map(middle, rounded);
  decays.own_local = decays.own - (is_first ? before : middle);
  decays.last = middle + totals[2 * own_block + 1][task.lane];
#pragma unroll 1
  for (int b = own_block + 1; b < kBlocks; ++b) {
    const float4 later = decays.last + totals[2 * b][task.lane];
    decays.last = later + totals[2 * b + 1][task.lane];
    if (!is_first) continue;
    const Bf16Quad factors = narrow(exp2_approx(map(later, rounded) - decays.own));
    // Channels 4 lane .. + 3: pairs 2 t and 2 t + 1 of the first or the second eight of 16.
    auto* const at = reinterpret_cast<std::uint32_t*>(
                         &shared.between[b * (b - 1) / 2 + own_block][4 * (task.lane / 4)]) +
                     4 * (task.lane % 2) + task.lane % 4 / 2;
    at[0] = factors.x;
    at[2] = factors.y;
  }
  return decays;
}

/// Step 2. A thread replaces q and k by their operands where they stand.
__device__ inline void write_operands(const KdaPrefillProblem& p, const float4 (&G)[kRows],
                                      const BuilderTask& task, BuilderShared& shared) {
  const ThreadQuads at(task);
  RowScales scales = {p.scale, 1.0F};
  if (p.qk_l2norm) {
    scales.k = inverse_norms(task.lane, [&](int i) { return at.of(shared.keys, i); });
    scales.q *= inverse_norms(task.lane, [&](int i) { return at.of(shared.queries, i); });
  }
  const ChannelDecays decays = find_references(task, shared);
  const float4 start = exp2_approx(decays.own);
  const Bf16Quad from_start = narrow(start);
  const float4 to_end = exp2_approx(decays.last - decays.own);
  if (task.warp % 2 == 0)
    *reinterpret_cast<uint4*>(&shared.minus_from_start[task.warp / 2][task.channel]) = {
        pack_bf16(-start.x, -start.x), pack_bf16(-start.y, -start.y), pack_bf16(-start.z, -start.z),
        pack_bf16(-start.w, -start.w)};
  if (task.warp == 0)
    *reinterpret_cast<float4*>(&task.factors->gamma[task.channel]) = exp2_approx(decays.last);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float4 key = widen(at.of(shared.keys, i)) * scales.k_of(i);
    const float4 query = widen(at.of(shared.queries, i)) * scales.q_of(i);
    const float4 grown = exp2_approx(G[i] - decays.own_local);
    const float4 column_key = key * map(grown, rcp_approx);
    const Bf16Quad row_query = narrow(query * grown);
    at.of(shared.keys, i) = narrow(key * grown);
    at.of(shared.queries, i) = row_query;
    at.of(shared.columns, i) = narrow(column_key);
    at.of(task.factors->q_decayed, i) = multiply_pairs(row_query, from_start);
    at.of(task.factors->k_remaining, i) = narrow(column_key * to_end);
  }
}

/// Blocks (i, j) of L and of the output matrix go where they belong.
template <bool kDiagonal>
__device__ void store_blocks(const SumTile& lower, const SumTile& output, int i, int j,
                             const BuilderTask& task, BuilderShared& shared) {
  const int row0 = task.lane / 4;
  const int column0 = 2 * (task.lane % 4);
  const float* const beta = &shared.beta[kBlock * i + row0];
  float* const lower_at = &shared.lower[kBlock * i + row0][kBlock * j + column0];
  // Eight rows on, the piece is the same; eight columns on, it is the other of two.
  std::byte* const output_at = reinterpret_cast<std::byte*>(task.factors->output_matrix) +
                               ChunkTile::offset(kBlock * i + row0, kBlock * j + column0);
  const int next_piece = row0 % 2 == 0 ? 16 : -16;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const l = &lower.half[half].c[2 * upper];
      const float* const o = &output.half[half].c[2 * upper];
      const int above = column0 + 8 * half - (row0 + 8 * upper);  // of the pair, the diagonal
      *reinterpret_cast<float2*>(lower_at + 8 * upper * kLowerPitch + 8 * half) = {
          beta[8 * upper] * l[0], beta[8 * upper] * l[1]};
      *reinterpret_cast<std::uint32_t*>(output_at + 8 * upper * ChunkTile::kRowBytes +
                                        half * next_piece) =
          pack_bf16(kDiagonal && above > 0 ? 0.0F : o[0], kDiagonal && above >= 0 ? 0.0F : o[1]);
    }
}

/// Zeros to block (i, j), above the diagonal, of the output matrix: 32 pieces.
__device__ inline void clear_output_block(int i, int j, const BuilderTask& task) {
  *reinterpret_cast<uint4*>(
      reinterpret_cast<std::byte*>(task.factors->output_matrix) +
      ChunkTile::offset(kBlock * i + task.lane / 2, kBlock * j + 8 * (task.lane % 2))) =
      uint4{0, 0, 0, 0};
}

/// Blocks (i, j) of L and of the output matrix, whose right operand is the same.
template <bool kDiagonal>
__device__ void make_blocks(int i, int j, const BuilderTask& task, BuilderShared& shared) {
  constexpr int kBlockBytes = kBlock * SwizzledTile<kHalf>::kRowBytes;
  const RowsLane<kHalf> keys(shared_address(shared.keys) + i * kBlockBytes, task.lane);
  const RowsLane<kHalf> queries(shared_address(shared.queries) + i * kBlockBytes, task.lane);
  const ColumnsLane<kHalf> columns(shared_address(shared.columns) + j * kBlockBytes, task.lane);
  const uint2* const between = &shared.between[i * (i - 1) / 2 + j][task.lane % 4];
  SumTile lower;
  SumTile output;
#pragma unroll
  for (int d = 0; d < kHeadDim; d += 16) {
    const int half = d / kHalf * kChunk;  // first row of the tile's half
    std::uint32_t b[4];
    load_b_of_transpose(b, columns, half, d % kHalf);
    if constexpr (!kDiagonal) {
      const uint2 factor = between[d / 4];
#pragma unroll
      for (int r = 0; r < 4; ++r) b[r] = multiply_pairs(b[r], r % 2 == 0 ? factor.x : factor.y);
    }
    multiply_add(lower.half[0], lower.half[1], load_a(keys, half, d % kHalf), b);
    multiply_add(output.half[0], output.half[1], load_a(queries, half, d % kHalf), b);
  }
  store_blocks<kDiagonal>(lower, output, i, j, task, shared);
}

/// Step 3: six warps have a block below the diagonal each, two have two blocks on it.
__device__ inline void make_matrices(const BuilderTask& task, BuilderShared& shared) {
  constexpr int kBelow = kBlocks * (kBlocks - 1) / 2;
  static_assert(kBlocks == 4 && kBuilderWarps == kBelow + 2);
  if (task.warp < kBelow) {
    const int i = task.warp < 1 ? 1 : task.warp < 3 ? 2 : 3;
    const int j = task.warp - i * (i - 1) / 2;
    make_blocks<false>(i, j, task, shared);
    clear_output_block(j, i, task);
    return;
  }
#pragma unroll 1
  for (int i = task.warp - kBelow; i < kBlocks; i += 2) make_blocks<true>(i, i, task, shared);
}

/// Rows of q, k or v, on their way to shared memory; zeros past the sequence.
__device__ inline void fetch_rows(const bf16* from, const TokenStrides& strides,
                                  const BuilderTask& task, int head, bf16* to) {
  constexpr int kAtOnce = 8 * kBuilderThreads / kHeadDim;  ///< rows
  static_assert(kAtOnce % 8 == 0, "the swizzle is the same in each round");
  const int row = static_cast<int>(threadIdx.x) / 16;
  const int column = 8 * (static_cast<int>(threadIdx.x) % 16);
  const bf16* at = from + task.batch * strides.batch + (task.token + row) * strides.token +
                   head * strides.head + column;
  const std::uint32_t place = shared_address(to) + HalvedTile::offset(row, column);
#pragma unroll
  for (int first = 0; first < kChunk; first += kAtOnce, at += kAtOnce * strides.token)
    copy_async_16(place + first * SwizzledTile<kHalf>::kRowBytes, at, first + row < task.rows);
}

/// A pair of M = X diag(beta) as the sum of two bf16 matrices, `offset` bytes into each: rounded
/// once, M would be the worst of all roundings (repeated keys with beta near 1: error ratio 0.08
/// instead of 0.016).
__device__ inline void store_solve(float2 x, float2 beta, int offset, BuilderShared& shared) {
  const float2 exact = {x.x * beta.x, x.y * beta.y};
  const std::uint32_t high = pack_bf16(exact.x, exact.y);
  const float2 rounded = unpack_bf16(high);
  std::byte* const at = reinterpret_cast<std::byte*>(shared.columns) + offset;
  *reinterpret_cast<std::uint32_t*>(at) = high;
  *reinterpret_cast<std::uint32_t*>(at + kChunk * ChunkTile::kRowBytes) =
      pack_bf16(exact.x - rounded.x, exact.y - rounded.y);
}

/// M of the two halves on the diagonal. Blocks above the diagonal stay unset.
__device__ inline void store_diagonal_halves(BuilderShared& shared) {
  const int row = static_cast<int>(threadIdx.x) / 16;
  const int column = 2 * (static_cast<int>(threadIdx.x) % 16);
  const int offset = ChunkTile::offset(row, column);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // 32 columns on, the piece is the other of eight that differ in their highest bit.
    const int at = (offset ^ 64 * half) + 32 * half * ChunkTile::kRowBytes;
    const float* const x = &shared.lower[32 * half + row][32 * half + column];
    const float2 beta = *reinterpret_cast<const float2*>(&shared.beta[32 * half + column]);
    if (column < kBlock) store_solve(*reinterpret_cast<const float2*>(x), beta, at, shared);
    store_solve(*reinterpret_cast<const float2*>(x + kBlock * kLowerPitch), beta,
                at + kBlock * ChunkTile::kRowBytes, shared);
  }
}

/// Step 4.
__device__ inline void make_solve(const BuilderTask& task, BuilderShared& shared) {
  LowerMatrix& x = shared.lower;
  if (task.warp < kBlocks) invert_diagonal_block(x, kBlock * task.warp, task.lane);
  __syncthreads();
  if (task.warp < 2) join_diagonal_blocks(x, 32 * task.warp, task.lane);
  __syncthreads();
  const FragmentC joined = join_halves(x, task.warp, task.lane);
  const int column = 8 * (task.warp % 4) + 2 * (task.lane % 4);
  const float2 beta = *reinterpret_cast<const float2*>(&shared.beta[column]);
  const int at = ChunkTile::offset(32 + 16 * (task.warp / 4) + task.lane / 4, column);
  store_solve({joined.c[0], joined.c[1]}, beta, at, shared);
  store_solve({joined.c[2], joined.c[3]}, beta, at + 8 * ChunkTile::kRowBytes, shared);
  store_diagonal_halves(shared);
}

/// Step 5: four warps take 32 columns each of -M (k exp(G)), whose right operand is the row operand
/// of its block times a power of two, the others of M v; the result stands where the operand was.
__device__ inline void multiply_solve(const BuilderTask& task, BuilderShared& shared) {
  const bool is_w = task.warp < 4;
  const int column0 = 32 * (task.warp % 4);
  const RowsLane<kHalf> half(
      shared_address(is_w ? shared.keys : shared.queries) + column0 / kHalf * kHalfTileBytes,
      task.lane);
  const RowsLane<kChunk> high(shared_address(shared.columns), task.lane);
  const RowsLane<kChunk> low(shared_address(shared.columns + kChunk * kChunk), task.lane);
  std::uint32_t b[kBlocks][2][4];
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
#pragma unroll
    for (int n = 0; n < 2; ++n) load_b(b[j][n], half, kBlock * j, column0 % kHalf + 16 * n);
  if (is_w) {
    const std::uint32_t* const factors = &shared.minus_from_start[0][column0 + task.lane / 4];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          b[j][n][r] = multiply_pairs(b[j][n][r], factors[kHeadDim * j + 16 * n + 8 * (r / 2)]);
  }
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
    for (int n = 0; n < 2; ++n)
      store_a(as_operand(c[2 * n], c[2 * n + 1]), half, kBlock * i, column0 % kHalf + 16 * n);
  }
}

/// Sets all of the task but what the thread's number says. False for a slot without tokens.
__device__ inline bool find_task(const KdaPrefillProblem& p, const PrefillPlan& plan,
                                 std::int64_t slot, BuilderTask& task) {
  if (slot < 0) return false;
  task.head = static_cast<int>(blockIdx.x);
  task.key_head = p.HV == p.H ? task.head : task.head / (p.HV / p.H);
  const Chunk chunk = device_chunk_of_slot(p, slot);
  task.batch = chunk.batch;
  task.token = chunk.token;
  task.rows = chunk.rows;
  task.factors = plan.factors + slot * p.HV + task.head;
  return task.rows > 0;
}

/// Grid: heads along x, chunk slots, the last first, along y and z (grid_over_requests); before
/// them a row whose first CTA orders the sequences, where there are several.
__global__ __launch_bounds__(kBuilderThreads, kBuilderCtas) void kda_prefill_builder_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
  static_assert(sizeof(OrderShared<kBuilderThreads>) <= sizeof(BuilderShared));
  extern __shared__ __align__(1024) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<BuilderShared*>(dynamic_shared);
  BuilderTask task;
  unsigned slot = blockIdx.y + blockIdx.z * gridDim.y;
  pdl_wait();
  if (plan.longest != nullptr && slot-- == 0) {
    if (blockIdx.x == 0)
      order_sequences(p, plan, *reinterpret_cast<OrderShared<kBuilderThreads>*>(dynamic_shared));
    return;
  }
  // Backwards: the factors that the chain wants first are then still in the L2.
  if (!find_task(p, plan, plan.num_slots - 1 - slot, task)) return;

  fetch_rows(p.k, p.k_strides, task, task.key_head, shared.keys);
  fetch_rows(p.q, p.q_strides, task, task.key_head, shared.queries);
  if (threadIdx.x < kChunk)
    shared.beta[threadIdx.x] = load_beta(p, task, static_cast<int>(threadIdx.x));
  float4 G[kRows];
  load_gates(p, task, G);
  activate_gates(p, task, G);
  const bool in_range = accumulate_in_warp(G, task, shared);
  wait_for_async_copies();
  if (__syncthreads_and(static_cast<int>(in_range)) != 0) {
    write_operands(p, G, task, shared);
    __syncthreads();
    make_matrices(task, shared);
  } else {
    make_wide_range_factors(p, task, shared);
  }
  __syncthreads();
  fetch_rows(p.v, p.v_strides, task, task.head, shared.queries);
  make_solve(task, shared);
  wait_for_async_copies();
  __syncthreads();
  multiply_solve(task, shared);
  publish_to_bulk_copies();
  __syncthreads();
  pdl_launch_dependents();
  if (threadIdx.x == 0) {
    bulk_store(task.factors->minus_w, shared.keys, sizeof(shared.keys));
    bulk_store(task.factors->u, shared.queries, sizeof(shared.queries));
    wait_until_bulk_stores_have_read();
  }
}

}  // namespace k3::cuda
