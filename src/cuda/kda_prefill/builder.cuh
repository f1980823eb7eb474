// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/mma.cuh"
#include "cuda/kda_prefill/inverse.cuh"
#include "cuda/kda_prefill/plan.cuh"

/// The token-parallel half of a prefill: one CTA of eight warps makes the ChunkFactors of a (chunk,
/// value head).
///
/// A thread holds two neighbouring channels of 16 rows: warp w rows 16 (w / 2) .. + 15, channels
/// 64 (w % 2) + 2 lane, + 1. With G the cumulative log2 decay of the chunk, per channel:
///
///   1. q, k, g, beta into registers; sums over channels for the norms and for q_i . k_i; G.
///   2. Six levels m = 32, 16, 8, 4, 2, 1. Of a pair j < i let m be the highest bit in which the
///   rows
///      differ: then i has it and j has not, and between them lies the row r with the bits of i
///      above m, bit m, and zeros below. exp(G_i - G_j) = exp(G_i - G_r) exp(G_r - G_j), and no
///      factor exceeds 1, whatever the gates: at level m a row is either query (bit m set) or key,
///      and its operand is k (and q) times exp(-|G - G_r|). Products of the tiles that have pairs
///      of this level; each warp has one tile of 16 x 8 of either matrix.
///   3. Operands of the chain: q exp(G), k exp(G_last - G), gamma go out; k exp(G) and v to shared
///      memory.
///   4. (I + L)^-1 in fp32 (inverse.cuh).
///   5. With M = (I + L)^-1 diag(beta), in two parts: -M (k exp(G)) and M v; bulk copies to the
///      workspace.
///
/// Norms are factors of rows: 1 / |k_j| and the like multiply sums, so operands are rounded once.
/// Rows past the sequence have k = q = v = 0, beta = 0 and no decay.
///
/// Shared memory: two tiles each of keys and queries, which the levels use in turns and steps 3 and
/// 5 after them. Barriers: __syncthreads only, one a level.
namespace k3::cuda {

inline constexpr int kBuilderThreads = 256;
inline constexpr int kThreadRows = 16;
using KeyTile = SwizzledTile<kHeadDim>;
using ChunkTile = SwizzledTile<kChunk>;

/// Log2 decay of one step below which nothing is left of a state: also for -inf, whose differences
/// would be no numbers.
inline constexpr float kMinLog2Decay = -160.0F;
inline constexpr float kLog2E = 1.4426950408889634F;

struct BuilderShared {
  bf16 keys[2][kChunk * kHeadDim];
  bf16 queries[2][kChunk * kHeadDim];
  bf16 output_matrix[kChunk * kChunk];
  float lower[kChunk][kLowerPitch];  ///< L, then (I + L)^-1
  float sums[3][kChunk][2];          ///< q.q, k.k, q.k over either half of the channels
  float q_scale[kChunk];             ///< scale / |q|
  float k_scale[kChunk];             ///< 1 / |k|
  float beta[kChunk];
  float totals[4][kHeadDim];   ///< of 16 rows each
  float borders[4][kHeadDim];  ///< G of their first row
};

/// A CTA's chunk.
struct BuilderTask {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int group = warp / 2;                      ///< of 16 rows
  int first_row = kThreadRows * group;       ///< of the thread
  int channel = 64 * (warp % 2) + 2 * lane;  ///< first of the thread's two
  int head = 0;
  std::int64_t batch = 0;
  std::int64_t token = 0;  ///< first
  int rows = 0;
  ChunkFactors* factors = nullptr;
};

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float2 exp2_approx(float2 x) { return {exp2_approx(x.x), exp2_approx(x.y)}; }
__device__ inline float2 operator*(float2 a, float2 b) { return {a.x * b.x, a.y * b.y}; }
__device__ inline float2 operator*(float2 a, float b) { return {a.x * b, a.y * b}; }
__device__ inline float2 operator+(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ inline float2 operator-(float2 a, float2 b) { return {a.x - b.x, a.y - b.y}; }
__device__ inline std::uint32_t pack_bf16(float2 v) { return pack_bf16(v.x, v.y); }

/// A pair of elements of a swizzled tile; `column` is even.
template <class Tile>
__device__ std::uint32_t& tile_pair(void* tile, int row, int column) {
  return *reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(tile) +
                                           Tile::offset(row, column));
}

/// The thread's 16 pairs of a [tokens, heads, 128] tensor; zero past the chunk's rows.
__device__ inline void load_pairs(const bf16* from, const TokenStrides& strides,
                                  const BuilderTask& task, int head,
                                  std::uint32_t (&to)[kThreadRows]) {
  const bf16* const first = from + task.batch * strides.batch +
                            (task.token + task.first_row) * strides.token + head * strides.head +
                            task.channel;
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i)
    to[i] = task.first_row + i < task.rows
                ? *reinterpret_cast<const std::uint32_t*>(first + i * strides.token)
                : 0U;
}

/// Log2 decays of the thread's elements.
__device__ inline void load_decays(const KdaPrefillProblem& p, const BuilderTask& task,
                                   float2 (&decay)[kThreadRows]) {
  const std::int64_t first = task.batch * p.g_strides.batch +
                             (task.token + task.first_row) * p.g_strides.token +
                             task.head * p.g_strides.head + task.channel;
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    decay[i] = {0.0F, 0.0F};
    if (task.first_row + i >= task.rows) continue;
    const std::int64_t at = first + i * p.g_strides.token;
    if (p.g_dtype == DType::kF32)
      decay[i] = *reinterpret_cast<const float2*>(static_cast<const float*>(p.g) + at);
    else
      decay[i] =
          unpack_bf16(*reinterpret_cast<const std::uint32_t*>(static_cast<const bf16*>(p.g) + at));
  }
  Gate gate = {};
  float2 bias = {0.0F, 0.0F};
  if (p.gate_in_kernel) {
    gate = {gate_scale(p.A_log, task.head), p.lower_bound, p.has_lower_bound};
    if (p.dt_bias != nullptr) {
      const float* const at = p.dt_bias + task.head * kHeadDim + task.channel;
      bias = {at[0], at[1]};
    }
  }
  const auto log2_decay = [&](float x) {
    const float decay_of_step = kLog2E * x;
    return decay_of_step < kMinLog2Decay ? kMinLog2Decay : decay_of_step;  // NaN stays
  };
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    if (task.first_row + i >= task.rows) continue;
    float2 g = decay[i];
    if (p.gate_in_kernel) {
      g = g + bias;
      g = {gate(g.x), gate(g.y)};
    }
    decay[i] = {log2_decay(g.x), log2_decay(g.y)};
  }
}

__device__ inline float load_beta(const KdaPrefillProblem& p, const BuilderTask& task, int row) {
  if (row >= task.rows) return 0.0F;
  const std::int64_t at = task.batch * p.beta_strides.batch +
                          (task.token + row) * p.beta_strides.token +
                          task.head * p.beta_strides.head;
  const float raw = p.beta_dtype == DType::kF32 ? static_cast<const float*>(p.beta)[at]
                                                : widen(static_cast<const bf16*>(p.beta)[at]);
  if (!p.beta_sigmoid) return raw;
  return sigmoid(raw) * (p.allow_neg_eigval ? 2.0F : 1.0F);
}

/// Sums over channels of a product for the thread's rows: half of them into shared memory.
__device__ inline void sum_rows(const std::uint32_t (&x)[kThreadRows],
                                const std::uint32_t (&y)[kThreadRows], const BuilderTask& task,
                                float (&sums)[kChunk][2]) {
  float products[kThreadRows];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const float2 a = unpack_bf16(x[i]);
    const float2 b = unpack_bf16(y[i]);
    products[i] = fmaf(a.y, b.y, a.x * b.x);
  }
  const float sum = t128_scatter<32>(products, task.lane);
  if (task.lane < kThreadRows) sums[task.first_row + task.lane][task.warp % 2] = sum;
}

/// Decays become sums from the chunk's first row on. Returns that of the last row.
__device__ inline float2 accumulate_decays(float2 (&G)[kThreadRows], const BuilderTask& task,
                                           BuilderShared& shared) {
#pragma unroll
  for (int i = 1; i < kThreadRows; ++i) G[i] = G[i - 1] + G[i];
  *reinterpret_cast<float2*>(&shared.totals[task.group][task.channel]) = G[kThreadRows - 1];
  __syncthreads();
  float2 before = {0.0F, 0.0F};
  float2 last = {0.0F, 0.0F};
#pragma unroll
  for (int group = 0; group < 4; ++group) {
    if (group == task.group) before = last;
    last = last + *reinterpret_cast<const float2*>(&shared.totals[group][task.channel]);
  }
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) G[i] = before + G[i];
  *reinterpret_cast<float2*>(&shared.borders[task.group][task.channel]) = G[0];
  return last;
}

/// Writes a level's operands.
template <int kLevel>
__device__ void write_level(const std::uint32_t (&q)[kThreadRows],
                            const std::uint32_t (&k)[kThreadRows], const float2 (&G)[kThreadRows],
                            const BuilderTask& task, BuilderShared& shared, int buffer) {
  float2 border = {};
  if constexpr (kLevel >= kThreadRows) {
    const int group = kLevel == 32 ? 2 : task.group | 1;
    border = *reinterpret_cast<const float2*>(&shared.borders[group][task.channel]);
  }
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int row = task.first_row + i;
    const bool is_query = (row & kLevel) != 0;
    if constexpr (kLevel < kThreadRows) border = G[(i & ~(2 * kLevel - 1)) + kLevel];
    const float2 factor = exp2_approx(is_query ? G[i] - border : border - G[i]);
    tile_pair<KeyTile>(shared.keys[buffer], row, task.channel) =
        pack_bf16(unpack_bf16(k[i]) * factor);
    if (is_query)
      tile_pair<KeyTile>(shared.queries[buffer], row, task.channel) =
          pack_bf16(unpack_bf16(q[i]) * factor);
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
__device__ void multiply_level(const BuilderTask& task, BuilderShared& shared, int buffer) {
  int row0 = 0;
  int column0 = 0;
  if (!level_tile<kLevel>(task.warp, row0, column0)) return;
  const std::uint32_t keys = shared_address(shared.keys[buffer]);
  const std::uint32_t queries = shared_address(shared.queries[buffer]);
  FragmentC lower;
  FragmentC output;
#pragma unroll
  for (int d = 0; d < kHeadDim; d += 32) {
    // Two steps of 16 channels of the eight columns: pieces d / 8 .. + 3 of their rows.
    std::uint32_t b[4];
    load_matrices(b, keys + KeyTile::offset(column0 + task.lane % 8, d + 8 * (task.lane / 8)));
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      multiply_add(lower, load_a<kHeadDim>(keys, row0, d + 16 * step, task.lane), b[2 * step],
                   b[2 * step + 1]);
      multiply_add(output, load_a<kHeadDim>(queries, row0, d + 16 * step, task.lane), b[2 * step],
                   b[2 * step + 1]);
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int i = row0 + task.lane / 4 + 8 * (c / 2);
    const int j = column0 + 2 * (task.lane % 4) + c % 2;
    const bool is_here = (i & kLevel) != 0 && ((i ^ j) & ~(kLevel - 1)) == kLevel;
    if (!is_here) continue;
    const float k_scale = shared.k_scale[j];
    shared.lower[i][j] = shared.beta[i] * (shared.k_scale[i] * k_scale) * lower.c[c];
    *reinterpret_cast<bf16*>(reinterpret_cast<std::byte*>(shared.output_matrix) +
                             ChunkTile::offset(i, j)) =
        narrow(shared.q_scale[i] * k_scale * output.c[c]);
  }
}

template <int kLevel>
__device__ void run_levels(const std::uint32_t (&q)[kThreadRows],
                           const std::uint32_t (&k)[kThreadRows], const float2 (&G)[kThreadRows],
                           const BuilderTask& task, BuilderShared& shared, int buffer) {
  write_level<kLevel>(q, k, G, task, shared, buffer);
  __syncthreads();
  multiply_level<kLevel>(task, shared, buffer);
  if constexpr (kLevel > 1) run_levels<kLevel / 2>(q, k, G, task, shared, buffer ^ 1);
}

/// Step 3, but for v. The buffers 0 are free: the last level used the others.
__device__ inline void write_operands(const std::uint32_t (&q)[kThreadRows],
                                      const std::uint32_t (&k)[kThreadRows],
                                      const float2 (&G)[kThreadRows], float2 last,
                                      const BuilderTask& task, BuilderShared& shared) {
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int row = task.first_row + i;
    const float2 decay = exp2_approx(G[i]);
    const float2 key = unpack_bf16(k[i]) * shared.k_scale[row];
    tile_pair<KeyTile>(shared.keys[0], row, task.channel) = pack_bf16(key * decay);
    tile_pair<HalvedTile>(task.factors->k_remaining, row, task.channel) =
        pack_bf16(key * exp2_approx(last - G[i]));
    tile_pair<HalvedTile>(task.factors->q_decayed, row, task.channel) =
        pack_bf16((unpack_bf16(q[i]) * shared.q_scale[row]) * decay);
  }
  if (task.group == 0)
    *reinterpret_cast<float2*>(&task.factors->gamma[task.channel]) = exp2_approx(last);
}

/// Rows row0 .. + 15, columns column0 .. + 15 of M = (I + L)^-1 diag(beta) as the sum of two
/// operands: rounded once to bf16, M would be the worst of all roundings (repeated keys with beta
/// near 1: error ratio 0.08 instead of 0.016). Zero above the diagonal.
struct SolveFragment {
  FragmentA high;
  FragmentA low;
};

__device__ inline SolveFragment load_solve(const BuilderShared& shared, int row0, int column0,
                                           int lane) {
  SolveFragment m;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = row0 + lane / 4 + 8 * (r % 2);
    const int column = column0 + 2 * (lane % 4) + 8 * (r / 2);
    const float2 x = *reinterpret_cast<const float2*>(&shared.lower[row][column]);
    const float2 beta = *reinterpret_cast<const float2*>(&shared.beta[column]);
    const float2 exact = {column <= row ? x.x * beta.x : 0.0F,
                          column + 1 <= row ? x.y * beta.y : 0.0F};
    m.high.a[r] = pack_bf16(exact);
    m.low.a[r] = pack_bf16(exact - unpack_bf16(m.high.a[r]));
  }
  return m;
}

/// Step 5: four warps take 32 columns each of M (k exp(G)), the others of M v.
__device__ inline void multiply_solve(const BuilderTask& task, BuilderShared& shared) {
  const bool is_w = task.warp < 4;
  const int column0 = 32 * (task.warp % 4);
  const std::uint32_t operand = shared_address(is_w ? shared.keys[0] : shared.queries[0]);
  FragmentC c[4][4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    std::uint32_t b[2][4];
    load_b<kHeadDim>(b[0], operand, 16 * j, column0, task.lane);
    load_b<kHeadDim>(b[1], operand, 16 * j, column0 + 16, task.lane);
#pragma unroll
    for (int i = j; i < 4; ++i) {
      const SolveFragment m = load_solve(shared, 16 * i, 16 * j, task.lane);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        multiply_add(c[i][2 * n], c[i][2 * n + 1], m.high, b[n]);
        multiply_add(c[i][2 * n], c[i][2 * n + 1], m.low, b[n]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int row = 16 * i + task.lane / 4 + 8 * upper;
        const int column = column0 + 8 * n + 2 * (task.lane % 4);
        const float x = c[i][n].c[2 * upper];
        const float y = c[i][n].c[2 * upper + 1];
        if (is_w)
          tile_pair<HalvedTile>(shared.keys[1], row, column) = pack_bf16(-x, -y);
        else
          tile_pair<HalvedTile>(shared.queries[1], row, column) = pack_bf16(x, y);
      }
}

__global__ __launch_bounds__(kBuilderThreads, 2) void kda_prefill_builder_kernel(
    const __grid_constant__ KdaPrefillProblem p, const __grid_constant__ PrefillPlan plan) {
  extern __shared__ __align__(128) std::byte dynamic_shared[];
  auto& shared = *reinterpret_cast<BuilderShared*>(dynamic_shared);
  const auto thread = static_cast<int>(threadIdx.x);
  BuilderTask task;
  task.head = static_cast<int>(blockIdx.x % p.HV);
  const auto chunk = static_cast<int>(blockIdx.x / p.HV);
  pdl_wait();
  if (p.packed && chunk >= *plan.num_chunks) return;
  const int n =
      p.packed ? plan.sequence_of[chunk] : static_cast<int>(chunk / ((p.T + kChunk - 1) / kChunk));
  const PrefillSequence sequence = find_sequence(p, plan, n);
  const std::int64_t done = std::int64_t{chunk - sequence.first_chunk} * kChunk;
  task.batch = p.packed ? 0 : n;
  task.token = sequence.begin + done;
  task.rows = static_cast<int>(min(sequence.length - done, std::int64_t{kChunk}));
  task.factors = plan.factors + std::int64_t{chunk} * p.HV + task.head;

  std::uint32_t q[kThreadRows];
  std::uint32_t k[kThreadRows];
  float2 G[kThreadRows];
  const int key_head = task.head / (p.HV / p.H);
  load_pairs(p.q, p.q_strides, task, key_head, q);
  load_pairs(p.k, p.k_strides, task, key_head, k);
  load_decays(p, task, G);
  for (int at = thread; at < kChunk * kChunk / 2; at += kBuilderThreads)
    reinterpret_cast<std::uint32_t*>(shared.output_matrix)[at] = 0;
  sum_rows(q, q, task, shared.sums[0]);
  sum_rows(k, k, task, shared.sums[1]);
  sum_rows(q, k, task, shared.sums[2]);
  const float2 last = accumulate_decays(G, task, shared);
  if (thread < kChunk) {
    const auto sum = [&](int which) {
      return shared.sums[which][thread][0] + shared.sums[which][thread][1];
    };
    const float q_scale = p.scale * (p.qk_l2norm ? rsqrtf(sum(0) + kKdaL2Eps) : 1.0F);
    const float k_scale = p.qk_l2norm ? rsqrtf(sum(1) + kKdaL2Eps) : 1.0F;
    shared.q_scale[thread] = q_scale;
    shared.k_scale[thread] = k_scale;
    shared.beta[thread] = load_beta(p, task, thread);
    *reinterpret_cast<bf16*>(reinterpret_cast<std::byte*>(shared.output_matrix) +
                             ChunkTile::offset(thread, thread)) =
        narrow(q_scale * k_scale * sum(2));
  }
  __syncthreads();

  run_levels<32>(q, k, G, task, shared, 0);
  write_operands(q, k, G, last, task, shared);
  std::uint32_t v[kThreadRows];
  load_pairs(p.v, p.v_strides, task, task.head, v);
  __syncthreads();
  invert_unit_lower(shared.lower, reinterpret_cast<float*>(shared.queries[1]));
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i)
    tile_pair<KeyTile>(shared.queries[0], task.first_row + i, task.channel) = v[i];
  __syncthreads();
  multiply_solve(task, shared);
  publish_to_bulk_copies();
  __syncthreads();
  pdl_launch_dependents();
  if (thread == 0) {
    bulk_store(task.factors->minus_w, shared.keys[1], sizeof(shared.keys[1]));
    bulk_store(task.factors->u, shared.queries[1], sizeof(shared.queries[1]));
    bulk_store(task.factors->output_matrix, shared.output_matrix, sizeof(shared.output_matrix));
    wait_until_bulk_stores_have_read();
  }
}

}  // namespace k3::cuda
