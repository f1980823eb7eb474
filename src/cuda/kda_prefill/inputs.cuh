// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/approx.cuh"
#include "cuda/common/mma.cuh"
#include "cuda/kda_prefill/inverse.cuh"
#include "cuda/kda_prefill/plan.cuh"

/// How the builder's CTA of eight warps sees the tokens of its chunk: warp w has rows 8 w .. + 7,
/// half of a block of 16, and a lane four neighbouring channels from 4 lane on.
namespace k3::cuda {

inline constexpr int kBuilderWarps = 8;
inline constexpr int kBuilderThreads = 32 * kBuilderWarps;
inline constexpr int kBuilderCtas = 3;  ///< on an SM
inline constexpr int kBlock = 16;       ///< rows
inline constexpr int kBlocks = kChunk / kBlock;
inline constexpr int kRows = kChunk / kBuilderWarps;  ///< of a thread

/// Log2 decay of one step below which nothing is left of a state: also for -inf, whose differences
/// would be no numbers.
inline constexpr float kMinLog2Decay = -160.0F;

using ChunkTile = SwizzledTile<kChunk>;

/// Three of them fit on an SM. The way of wide_range.cuh keeps the operands of a level in keys and
/// queries, and in totals the G of the warps' first rows.
struct BuilderShared {
  bf16 keys[kChunk * kHeadDim];      ///< k; row operands of L, and of W; then -W
  bf16 queries[kChunk * kHeadDim];   ///< q; row operands of the output matrix; then v, U
  bf16 columns[kChunk * kHeadDim];   ///< column operands of both; then M in two parts
  LowerMatrix lower;                 ///< L, then (I + L)^-1
  float4 totals[kBuilderWarps][32];  ///< decay of a warp's rows, by channels
  /// -exp of the references from the chunk's start, in either half of a word.
  std::uint32_t minus_from_start[kBlocks][kHeadDim];
  /// exp from the reference of block j to that of block i > j in [i (i - 1) / 2 + j]: of each 16
  /// channels the pairs t and t + 4 together, as fragments B hold them.
  uint2 between[kBlocks * (kBlocks - 1) / 2][kHeadDim / 4];
  float beta[kChunk];
};

/// A CTA's chunk of one value head.
struct BuilderTask {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int first_row = kRows * warp;  ///< of the thread
  int channel = 4 * lane;        ///< first of the thread's four
  int head = 0;
  int key_head = 0;
  std::int64_t batch = 0;
  std::int64_t token = 0;  ///< first
  int rows = 0;            ///< of the chunk, 1 to 64
  ChunkFactors* factors = nullptr;
};

__device__ inline float4 exp2_approx(float4 x) {
  return map(x, [](float e) { return exp2_approx(e); });
}
__device__ inline float4 operator-(float4 a, float4 b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w};
}
__device__ inline Bf16Quad multiply_pairs(Bf16Quad a, Bf16Quad b) {
  return {multiply_pairs(a.x, b.x), multiply_pairs(a.y, b.y)};
}

/// A pair of elements of a swizzled tile; `column` is even.
template <class Tile>
__device__ std::uint32_t& tile_pair(void* tile, int row, int column) {
  return *reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(tile) +
                                           Tile::offset(row, column));
}

/// Where the thread's elements stand in a HalvedTile.
class ThreadQuads {
 public:
  __device__ explicit ThreadQuads(const BuilderTask& task)
      : first_(HalvedTile::offset(task.first_row, task.channel)) {}

  /// Of its row i.
  __device__ Bf16Quad& of(void* tile, int i) const {
    return *reinterpret_cast<Bf16Quad*>(static_cast<std::byte*>(tile) +
                                        ((first_ ^ i << 4) + i * SwizzledTile<kHalf>::kRowBytes));
  }

 private:
  int first_;
};
static_assert(kRows == 8, "a row's piece is that of the first row, by exclusive or with the row");

/// The thread's elements of a [tokens, heads, 128] tensor; zero past the chunk's rows.
template <class Quad, class T>
__device__ void load_rows(const T* from, const TokenStrides& strides, const BuilderTask& task,
                          int head, Quad (&to)[kRows]) {
  static_assert(sizeof(Quad) == 4 * sizeof(T));
  const T* at = from + task.batch * strides.batch + (task.token + task.first_row) * strides.token +
                head * strides.head + task.channel;
  if (task.rows == kChunk) {
#pragma unroll
    for (int i = 0; i < kRows; ++i, at += strides.token) to[i] = *reinterpret_cast<const Quad*>(at);
    return;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    to[i] = Quad{};
    if (task.first_row + i < task.rows)
      to[i] = *reinterpret_cast<const Quad*>(at + i * strides.token);
  }
}

/// The thread's raw gates, or log decays.
__device__ inline void load_gates(const KdaPrefillProblem& p, const BuilderTask& task,
                                  float4 (&g)[kRows]) {
  if (p.g_dtype == DType::kF32) {
    load_rows(static_cast<const float*>(p.g), p.g_strides, task, task.head, g);
    return;
  }
  Bf16Quad quads[kRows];
  load_rows(static_cast<const bf16*>(p.g), p.g_strides, task, task.head, quads);
#pragma unroll
  for (int i = 0; i < kRows; ++i) g[i] = widen(quads[i]);
}

/// At least kMinLog2Decay; a NaN stays.
__device__ inline float bounded_decay(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(kMinLog2Decay));
  return y;
}

/// Raw gates become log2 decays of the steps, at least kMinLog2Decay (a bound above it makes sure
/// of that by itself); none past the chunk's rows.
__device__ inline void activate_gates(const KdaPrefillProblem& p, const BuilderTask& task,
                                      float4 (&g)[kRows]) {
  const auto apply = [&](const auto& log2_decay) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) g[i] = log2_decay(g[i]);
  };
  const auto clamp = [&] {
#pragma unroll
    for (int i = 0; i < kRows; ++i) g[i] = map(g[i], bounded_decay);
  };
  float4 bias = {0.0F, 0.0F, 0.0F, 0.0F};
  if (p.dt_bias != nullptr) {
    const float* const at = p.dt_bias + task.head * kHeadDim + task.channel;
    bias = {at[0], at[1], at[2], at[3]};
  }
  if (!p.gate_in_kernel) {
    apply([](float4 x) { return x * kLog2E; });
    clamp();
  } else if (p.has_lower_bound) {
    // lower_bound sigmoid(a (x + bias)), both exponentials to base 2
    const float slope = -kLog2E * gate_scale(p.A_log, task.head);
    const float bound = kLog2E * p.lower_bound;
    const float4 offset = bias * slope;
    apply([&](float4 x) {
      return map(exp2_approx(fma(x, slope, offset)),
                 [&](float e) { return bound * rcp_approx(1.0F + e); });
    });
    if (bound < kMinLog2Decay) clamp();
  } else {
    const float a = kLog2E * gate_scale(p.A_log, task.head);
    apply([&](float4 x) { return map(x + bias, softplus) * -a; });
    clamp();
  }
  if (task.rows == kChunk) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    if (task.first_row + i >= task.rows) g[i] = {0.0F, 0.0F, 0.0F, 0.0F};
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

/// One step of sum_of_rows: a lane keeps half of its 2 kKept sums, those of the upper rows where
/// its bit says so.
template <int kKept>
__device__ void halve_rows(float (&sums)[kRows], int lane) {
  constexpr int kDistance = 32 / kRows * kKept;
  const bool is_upper = (lane & kDistance) != 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const float low = sums[i];
    const float high = sums[i + kKept];
    sums[i] = (is_upper ? high : low) +
              __shfl_xor_sync(warp::kAllLanes, is_upper ? low : high, kDistance);
  }
  if constexpr (kKept > 1) halve_rows<kKept / 2>(sums, lane);
}

/// Sums of a warp's rows over the lanes: 32 / kRows lanes get that of a row, the first ones of the
/// first.
__device__ inline float sum_of_rows(float (&parts)[kRows], int lane) {
  halve_rows<kRows / 2>(parts, lane);
  return warp::sum<32 / kRows>(parts[0]);
}

/// Scales of a warp's rows, as sum_of_rows leaves them.
struct RowScales {
  float q = 0.0F;  ///< scale / |q|
  float k = 0.0F;  ///< 1 / |k|

  [[nodiscard]] __device__ float q_of(int row) const { return of(q, row); }
  [[nodiscard]] __device__ float k_of(int row) const { return of(k, row); }

 private:
  __device__ static float of(float x, int row) {
    return __shfl_sync(warp::kAllLanes, x, 32 / kRows * row);
  }
};

/// 1 / |x| of the warp's rows, as sum_of_rows leaves them; `quad(i)` is the thread's part of row i.
template <class Quad>
__device__ float inverse_norms(int lane, const Quad& quad) {
  float squares[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float4 x = widen(quad(i));
    squares[i] = t128_group(x, x);
  }
  return rsqrtf(sum_of_rows(squares, lane) + kKdaL2Eps);
}

}  // namespace k3::cuda
