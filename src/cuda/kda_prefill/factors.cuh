// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/async_copy.cuh"
#include "cuda/kda_prefill/inputs.cuh"
#include "cuda/kda_prefill/inverse.cuh"
#include "cuda/kda_prefill/wide_range.cuh"

/// From a chunk's q, k, g and beta to the factors of the chain: steps of a CTA of eight warps, for
/// the builder (builder.cuh) and for sequences of one chunk (one_chunk.cuh). G is the cumulative
/// log2 decay of the chunk, per channel; a block has 16 rows.
///
///   1. q, k and beta to shared memory, g into registers (inputs.cuh); G within each warp's rows.
///   2. exp(G_i - G_j) = exp(G_i - R_i) exp(R_i - R_j) exp(R_j - G_j), with R the G of a row in the
///      middle of the block, rounded to a whole number: row operands k and q times exp(G - R),
///      column operands k exp(R - G), and between them powers of two, by which a bf16 number is
///      multiplied exactly; q exp(G), k exp(G_last - G) and gamma for the chain. Where a block's
///      decay leaves the range of these factors, the chunk takes the way of wide_range.cuh instead.
///   3. L and the output matrix: products of row and column operands, 20 of 16 x 16.
///   4. X = (I + L)^-1 (inverse.cuh), M = X diag(beta) in two parts.
///
/// What follows step 4 is the kernels'. Rows past the sequence have k = q = v = 0, beta = 0 and no
/// decay.
///
/// What differs between the kernels is where factors go. Their class `Factors` has
///
///   output_matrix(), gamma()          where those go
///   kClears                           whether the output matrix's blocks above the diagonal become
///                                     zeros
///   put_remaining(at, i, key)         k exp(G_last - G) of the thread's row i
///   put_start(task, start)            exp of the block's reference from the chunk's start
///   put_query(at, i, query, start)    q exp(G) of the row, as a product
///   put_decayed(at, i, key, query)    k exp(G) and q exp(G) of the row, in the way of
///   wide_range.cuh after_matrices(task, start)       what becomes of the row operands, in the
///   common way
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
                                          ChunkTiles& shared) {
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
__device__ inline ChannelDecays find_references(const BuilderTask& task, ChunkTiles& shared) {
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

/// Step 2. A thread replaces q and k by their operands where they stand. Returns exp of its block's
/// reference from the chunk's start.
template <class Factors>
__device__ Bf16Quad write_operands(const KdaPrefillProblem& p, const float4 (&G)[kRows],
                                   const BuilderTask& task, const Factors& factors,
                                   ChunkTiles& shared) {
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
  factors.put_start(task, start, shared);
  if (task.warp == 0)
    *reinterpret_cast<float4*>(factors.gamma(shared) + task.channel) = exp2_approx(decays.last);
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
    factors.put_query(at, i, row_query, from_start);
    factors.put_remaining(at, i, narrow(column_key * to_end), shared);
  }
  return from_start;
}

/// Blocks (i, j) of L and of the output matrix go where they belong.
template <bool kDiagonal>
__device__ void store_blocks(const SumTile& lower, const SumTile& output, int i, int j,
                             const BuilderTask& task, bf16* output_matrix, ChunkTiles& shared) {
  const int row0 = task.lane / 4;
  const int column0 = 2 * (task.lane % 4);
  const float* const beta = &shared.beta[kBlock * i + row0];
  float* const lower_at = &shared.lower[kBlock * i + row0][kBlock * j + column0];
  // Eight rows on, the piece is the same; eight columns on, it is the other of two.
  std::byte* const output_at = reinterpret_cast<std::byte*>(output_matrix) +
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
__device__ inline void clear_output_block(int i, int j, int lane, bf16* output_matrix) {
  *reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(output_matrix) +
                            ChunkTile::offset(kBlock * i + lane / 2, kBlock * j + 8 * (lane % 2))) =
      uint4{0, 0, 0, 0};
}

/// Blocks (i, j) of L and of the output matrix, whose right operand is the same.
template <bool kDiagonal>
__device__ void make_blocks(int i, int j, const BuilderTask& task, bf16* output_matrix,
                            ChunkTiles& shared) {
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
  store_blocks<kDiagonal>(lower, output, i, j, task, output_matrix, shared);
}

/// Step 3: six warps have a block below the diagonal each, two have two blocks on it.
template <class Factors>
__device__ void make_matrices(const BuilderTask& task, const Factors& factors, ChunkTiles& shared) {
  constexpr int kBelow = kBlocks * (kBlocks - 1) / 2;
  static_assert(kBlocks == 4 && kBuilderWarps == kBelow + 2);
  if (task.warp < kBelow) {
    const int i = task.warp < 1 ? 1 : task.warp < 3 ? 2 : 3;
    const int j = task.warp - i * (i - 1) / 2;
    make_blocks<false>(i, j, task, factors.output_matrix(shared), shared);
    if constexpr (Factors::kClears)
      clear_output_block(j, i, task.lane, factors.output_matrix(shared));
    return;
  }
#pragma unroll 1
  for (int i = task.warp - kBelow; i < kBlocks; i += 2)
    make_blocks<true>(i, i, task, factors.output_matrix(shared), shared);
}

/// Rows of q, k or v, on their way to shared memory; zeros past the sequence.
__device__ inline void fetch_rows(const bf16* from, const TokenStrides& strides,
                                  const BuilderTask& task, int head, bf16* to) {
  constexpr int kAtOnce = 8 * kBuilderThreads / kHeadDim;  ///< rows
  static_assert(kAtOnce % 8 == 0, "the swizzle is the same in each round");
  const unsigned row = task.thread / 16;
  const unsigned column = 8 * (task.thread % 16);
  const bf16* at = from + task.batch * strides.batch + (task.token + row) * strides.token +
                   head * strides.head + column;
  const std::uint32_t place =
      shared_address(to) + HalvedTile::offset(static_cast<int>(row), static_cast<int>(column));
#pragma unroll
  for (int first = 0; first < kChunk; first += kAtOnce, at += kAtOnce * strides.token)
    copy_async_16(place + first * SwizzledTile<kHalf>::kRowBytes, at,
                  first + static_cast<int>(row) < task.rows);
}

/// A pair of M = X diag(beta) as the sum of two bf16 matrices, `offset` bytes into each: rounded
/// once, M would be the worst of all roundings (repeated keys with beta near 1: error ratio 0.08
/// instead of 0.016).
__device__ inline void store_solve(float2 x, const float* beta, int offset, void* to) {
  const float2 scale = *reinterpret_cast<const float2*>(beta);
  const float2 exact = {x.x * scale.x, x.y * scale.y};
  const std::uint32_t high = pack_bf16(exact.x, exact.y);
  const float2 rounded = unpack_bf16(high);
  std::byte* const at = static_cast<std::byte*>(to) + offset;
  *reinterpret_cast<std::uint32_t*>(at) = high;
  *reinterpret_cast<std::uint32_t*>(at + kChunk * ChunkTile::kRowBytes) =
      pack_bf16(exact.x - rounded.x, exact.y - rounded.y);
}

/// Step 4 but for its end: the two halves on the diagonal of X in place of L. Ends with a barrier.
__device__ inline void invert_halves(const BuilderTask& task, LowerMatrix& x) {
  if (task.warp < kBlocks) invert_diagonal_block(x, kBlock * task.warp, task.lane);
  __syncthreads();
  if (task.warp < 2) join_diagonal_blocks(x, 32 * task.warp, task.lane);
  __syncthreads();
}

/// The thread's elements of X. Blocks above the diagonal are nobody's.
class SolveElements {
 public:
  __device__ SolveElements(const BuilderTask& task, const LowerMatrix& x)
      : joined_(join_halves(x, task.warp, task.lane)) {
    const Place place(task);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const at = &x[32 * half + place.row][32 * half + place.column];
      if (place.column < kBlock) upper_[half] = *reinterpret_cast<const float2*>(at);
      lower_[half] = *reinterpret_cast<const float2*>(at + kBlock * kLowerPitch);
    }
  }

  /// Both parts of M to `to`, 16 KB.
  __device__ void store(const BuilderTask& task, const float (&beta)[kChunk], void* to) const {
    const int joined_column = 8 * (task.warp % 4) + 2 * (task.lane % 4);
    const int joined_at =
        ChunkTile::offset(32 + 16 * (task.warp / 4) + task.lane / 4, joined_column);
    store_solve({joined_.c[0], joined_.c[1]}, &beta[joined_column], joined_at, to);
    store_solve({joined_.c[2], joined_.c[3]}, &beta[joined_column],
                joined_at + 8 * ChunkTile::kRowBytes, to);
    const Place place(task);
    const int offset = ChunkTile::offset(place.row, place.column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // 32 columns on, the piece is the other of eight that differ in their highest bit.
      const int at = (offset ^ 64 * half) + 32 * half * ChunkTile::kRowBytes;
      const float* const scale = &beta[32 * half + place.column];
      if (place.column < kBlock) store_solve(upper_[half], scale, at, to);
      store_solve(lower_[half], scale, at + kBlock * ChunkTile::kRowBytes, to);
    }
  }

 private:
  /// In the halves on the diagonal, whose block on the upper right is zero.
  struct Place {
    __device__ explicit Place(const BuilderTask& task)
        : row(static_cast<int>(task.thread) / 16),
          column(2 * (static_cast<int>(task.thread) % 16)) {}
    int row;
    int column;
  };

  FragmentC joined_;
  float2 upper_[2] = {};
  float2 lower_[2];
};

/// k and q on their way to where step 2 expects them.
__device__ inline void fetch_keys_and_queries(const KdaPrefillProblem& p, const BuilderTask& task,
                                              ChunkTiles& shared) {
  fetch_rows(p.k, p.k_strides, task, task.key_head, shared.keys);
  fetch_rows(p.q, p.q_strides, task, task.key_head, shared.queries);
}

/// Steps 1 to 3, once k and q are on their way; ends with a barrier.
template <class Factors>
__device__ void make_chunk_matrices(const KdaPrefillProblem& p, const BuilderTask& task,
                                    const Factors& factors, ChunkTiles& shared) {
  if (task.thread < kChunk)
    shared.beta[task.thread] = load_beta(p, task, static_cast<int>(task.thread));
  float4 G[kRows];
  load_gates(p, task, G);
  activate_gates(p, task, G);
  const bool in_range = accumulate_in_warp(G, task, shared);
  wait_for_async_copies();
  if (__syncthreads_and(static_cast<int>(in_range)) != 0) {
    const Bf16Quad from_start = write_operands(p, G, task, factors, shared);
    __syncthreads();
    make_matrices(task, factors, shared);
    __syncthreads();
    factors.after_matrices(task, from_start, shared);
  } else {
    make_wide_range_factors(p, task, factors, shared);
    __syncthreads();
  }
}

}  // namespace k3::cuda
