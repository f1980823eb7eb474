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
  ChannelDecays decays = {};
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const float4 before = decays.last;
    const float4 middle = before + shared.totals[2 * b][task.lane];
    const float4 reference = map(middle, rounded);
    decays.last = middle + shared.totals[2 * b + 1][task.lane];
    if (b == own_block) {
      decays.own = reference;
      decays.own_local = decays.own - (is_first ? before : middle);
    }
    if (is_first && b > own_block) {
      const Bf16Quad factors = narrow(exp2_approx(reference - decays.own));
      // Channels 4 lane .. + 3: pairs 2 t and 2 t + 1 of the first or the second eight of 16.
      auto* const at = reinterpret_cast<std::uint32_t*>(
                           &shared.between[b * (b + 1) / 2 + own_block][4 * (task.lane / 4)]) +
                       4 * (task.lane % 2) + task.lane % 4 / 2;
      at[0] = factors.x;
      at[2] = factors.y;
    }
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
    *reinterpret_cast<uint4*>(&shared.from_start[task.warp / 2][task.channel]) = {
        pack_bf16(start.x, start.x), pack_bf16(start.y, start.y), pack_bf16(start.z, start.z),
        pack_bf16(start.w, start.w)};
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

/// Block (kI, kJ) of L or of the output matrix goes where it belongs.
template <int kI, int kJ>
__device__ void store_block(const SumTile& sums, bool is_lower, const BuilderTask& task,
                            BuilderShared& shared) {
  const int row0 = task.lane / 4;
  const int column0 = 2 * (task.lane % 4);
  constexpr bool kDiagonal = kI == kJ;
  float* const lower = &shared.lower[kBlock * kI + row0][kBlock * kJ + column0];
  // Eight rows on, the piece is the same; eight columns on, it is the other of two.
  std::byte* const output = reinterpret_cast<std::byte*>(task.factors->output_matrix) +
                            ChunkTile::offset(kBlock * kI + row0, kBlock * kJ + column0);
  const int next_piece = row0 % 2 == 0 ? 16 : -16;
  const auto for_each_pair = [&](const auto& store) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store(upper, half, sums.half[half].c[2 * upper], sums.half[half].c[2 * upper + 1]);
  };
  if (is_lower) {
    const float* const beta = &shared.beta[kBlock * kI + row0];
    for_each_pair([&](int upper, int half, float x, float y) {
      *reinterpret_cast<float2*>(lower + 8 * upper * kLowerPitch + 8 * half) = {
          beta[8 * upper] * x, beta[8 * upper] * y};
    });
  } else {
    for_each_pair([&](int upper, int half, float x, float y) {
      const int above = column0 + 8 * half - (row0 + 8 * upper);  // of x, the diagonal
      *reinterpret_cast<std::uint32_t*>(output + 8 * upper * ChunkTile::kRowBytes +
                                        half * next_piece) =
          pack_bf16(kDiagonal && above > 0 ? 0.0F : x, kDiagonal && above >= 0 ? 0.0F : y);
    });
  }
}

/// Zeros to the blocks of the output matrix above the diagonal: 32 pieces each.
__device__ inline void clear_upper_blocks(const BuilderTask& task) {
  constexpr int kUpperBlocks = kBlocks * (kBlocks - 1) / 2;
  if (task.warp >= kUpperBlocks) return;
  const int i = task.warp < 3 ? 0 : task.warp < 5 ? 1 : 2;
  const int j = task.warp < 3 ? task.warp + 1 : task.warp < 5 ? task.warp - 1 : 3;
  *reinterpret_cast<uint4*>(
      reinterpret_cast<std::byte*>(task.factors->output_matrix) +
      ChunkTile::offset(kBlock * i + task.lane / 2, kBlock * j + 8 * (task.lane % 2))) =
      uint4{0, 0, 0, 0};
}

/// Blocks (kI, kJ0) .. of a row of L or of the output matrix.
template <int kI, int kJ0, int kN>
__device__ void make_blocks(bool is_lower, const BuilderTask& task, BuilderShared& shared) {
  const RowsLane<kHalf> rows(shared_address(is_lower ? shared.keys : shared.queries), task.lane);
  const ColumnsLane<kHalf> columns(shared_address(shared.columns), task.lane);
  SumTile sums[kN];
#pragma unroll
  for (int d = 0; d < kHeadDim; d += 16) {
    const int half = d / kHalf * kChunk;  // first row of the tile's half
    const FragmentA a = load_a(rows, half + kBlock * kI, d % kHalf);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const int j = kJ0 + n;
      std::uint32_t b[4];
      load_b_of_transpose(b, columns, half + kBlock * j, d % kHalf);
      if (j != kI) {
        const uint2 factor = shared.between[kI * (kI + 1) / 2 + j][d / 4 + task.lane % 4];
#pragma unroll
        for (int r = 0; r < 4; ++r) b[r] = multiply_pairs(b[r], r % 2 == 0 ? factor.x : factor.y);
      }
      multiply_add(sums[n].half[0], sums[n].half[1], a, b);
    }
  }
  store_block<kI, kJ0>(sums[0], is_lower, task, shared);
  if constexpr (kN > 1) store_block<kI, kJ0 + 1>(sums[1], is_lower, task, shared);
  if constexpr (kN > 2) store_block<kI, kJ0 + 2>(sums[2], is_lower, task, shared);
}

/// Step 3: four warps have L, four the output matrix, two or three of ten blocks each.
__device__ inline void make_matrices(const BuilderTask& task, BuilderShared& shared) {
  const bool is_lower = task.warp < kBuilderWarps / 2;
  switch (task.warp % 4) {
    case 0:
      make_blocks<3, 0, 2>(is_lower, task, shared);
      break;
    case 1:
      make_blocks<2, 0, 3>(is_lower, task, shared);
      break;
    case 2:
      make_blocks<1, 0, 2>(is_lower, task, shared);
      make_blocks<0, 0, 1>(is_lower, task, shared);
      break;
    default:
      make_blocks<3, 2, 2>(is_lower, task, shared);
  }
  clear_upper_blocks(task);
}

/// Rows of q, k or v, on their way to shared memory; zeros past the sequence.
__device__ inline void fetch_rows(const bf16* from, const TokenStrides& strides,
                                  const BuilderTask& task, int head, bf16* to) {
  const bf16* const first =
      from + task.batch * strides.batch + task.token * strides.token + head * strides.head;
#pragma unroll
  for (int n = 0; n < kChunk * kHeadDim / 8 / kBuilderThreads; ++n) {
    const int piece = static_cast<int>(threadIdx.x) + n * kBuilderThreads;
    const int row = piece / 16;
    const int column = 8 * (piece % 16);
    const bool exists = row < task.rows;
    copy_async_16(shared_address(to) + HalvedTile::offset(row, column),
                  first + (exists ? row * strides.token + column : 0), exists);
  }
}

/// M = X diag(beta) as the sum of two bf16 matrices: rounded once, M would be the worst of all
/// roundings (repeated keys with beta near 1: error ratio 0.08 instead of 0.016).
__device__ inline void store_solve(float x, float y, int row, int column, BuilderShared& shared) {
  const float2 beta = *reinterpret_cast<const float2*>(&shared.beta[column]);
  const float2 exact = {x * beta.x, y * beta.y};
  const std::uint32_t high = pack_bf16(exact.x, exact.y);
  const float2 rounded = unpack_bf16(high);
  tile_pair<ChunkTile>(shared.columns, row, column) = high;
  tile_pair<ChunkTile>(shared.columns + kChunk * kChunk, row, column) =
      pack_bf16(exact.x - rounded.x, exact.y - rounded.y);
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
  // The six blocks of the halves on the diagonal: 128 pairs each, two blocks at a time.
  const int within = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
  for (int n = 0; n < 3; ++n) {
    const int block = 2 * n + task.warp / 4;
    const int i = block < 1 ? 0 : block < 3 ? 1 : block < 4 ? 2 : 3;
    const int j = block == 2 ? 1 : block == 5 ? 3 : block < 2 ? 0 : 2;
    const int row = kBlock * i + within / 8;
    const int column = kBlock * j + 2 * (within % 8);
    const float2 pair = *reinterpret_cast<const float2*>(&x[row][column]);
    store_solve(pair.x, pair.y, row, column, shared);
  }
}

/// Step 5: four warps take 32 columns each of M (k exp(G)), whose right operand is the row operand
/// of its block times a power of two, the others of M v; the result stands where the operand was.
__device__ inline void multiply_solve(const BuilderTask& task, BuilderShared& shared) {
  const bool is_w = task.warp < 4;
  const int column0 = 32 * (task.warp % 4);
  const RowsLane<kHalf> half(
      shared_address(is_w ? shared.keys : shared.queries) + column0 / kHalf * kHalfTileBytes,
      task.lane);
  const RowsLane<kChunk> high(shared_address(shared.columns), task.lane);
  const RowsLane<kChunk> low(shared_address(shared.columns + kChunk * kChunk), task.lane);
  const std::uint32_t sign = is_w ? 0x80008000U : 0U;
  std::uint32_t b[kBlocks][2][4];
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      load_b(b[j][n], half, kBlock * j, column0 % kHalf + 16 * n);
      if (!is_w) continue;
      const std::uint32_t* const factors = &shared.from_start[j][column0 + 16 * n + task.lane / 4];
#pragma unroll
      for (int r = 0; r < 4; ++r) b[j][n][r] = multiply_pairs(b[j][n][r], factors[8 * (r / 2)]);
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
    for (int n = 0; n < 2; ++n) {
      FragmentA rounded = as_operand(c[2 * n], c[2 * n + 1]);
#pragma unroll
      for (std::uint32_t& pair : rounded.a) pair ^= sign;
      store_a(rounded, half, kBlock * i, column0 % kHalf + 16 * n);
    }
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
