// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/mma.cuh"
#include "cuda/kda_prefill/inverse.cuh"
#include "cuda/kda_prefill/plan.cuh"

/// How the builder's CTA of eight warps sees the tokens of its chunk: warp w has block w / 2, rows
/// 16 (w / 2) .. + 15, and a lane two neighbouring channels, 64 (w % 2) + 2 lane, + 1.
namespace k3::cuda {

inline constexpr int kBuilderThreads = 256;
inline constexpr int kBlock = 16;  ///< rows
inline constexpr int kBlocks = kChunk / kBlock;

/// Log2 decay of one step below which nothing is left of a state: also for -inf, whose differences
/// would be no numbers.
inline constexpr float kMinLog2Decay = -160.0F;
inline constexpr float kLog2E = 1.4426950408889634F;

using FullTile = HalvedTile;
using ChunkTile = SwizzledTile<kChunk>;

/// Blocks on or below the diagonal, by rows.
inline constexpr int kLowerBlocks = kBlocks * (kBlocks + 1) / 2;

struct BuilderShared {
  bf16 keys[kChunk * kHeadDim];      ///< row operands of L, and of W; then -W
  bf16 queries[kChunk * kHeadDim];   ///< row operands of the output matrix
  bf16 columns[kChunk * kHeadDim];   ///< column operands of both; then M in two parts
  bf16 values[kChunk * kHeadDim];    ///< v, then U
  LowerMatrix lower;                 ///< L, then (I + L)^-1
  float totals[kBlocks][kHeadDim];   ///< decay of a block
  float middles[kBlocks][kHeadDim];  ///< decay of its rows up to the reference row
  /// exp of the references: from the chunk's start, in either half of a word ...
  std::uint32_t from_start[kBlocks][kHeadDim];
  /// ... and from that of block j to that of block i in [i (i + 1) / 2 + j], pairs of channels.
  std::uint32_t between[kLowerBlocks][kHeadDim / 2];
  float sums[2][kChunk][2];  ///< q.q, k.k over either half of the channels
  float beta[kChunk];
};

/// A CTA's chunk of one value head.
struct BuilderTask {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int block = warp / 2;                      ///< of the thread
  int first_row = kBlock * block;            ///< of the thread
  int channel = 64 * (warp % 2) + 2 * lane;  ///< first of the thread's two
  int head = 0;
  int key_head = 0;
  std::int64_t batch = 0;
  std::int64_t token = 0;  ///< first
  int rows = 0;            ///< of the chunk, 1 to 64
  ChunkFactors* factors = nullptr;
};

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
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

/// Where the thread's pairs stand in a FullTile.
class BlockPairs {
 public:
  __device__ explicit BlockPairs(const BuilderTask& task)
      : first_(FullTile::offset(task.first_row, task.channel)) {}

  /// Of row i of the block.
  __device__ std::uint32_t& of(void* tile, int i) const {
    return *reinterpret_cast<std::uint32_t*>(
        static_cast<std::byte*>(tile) +
        ((first_ ^ (i % 8) << 4) + i * SwizzledTile<kHalf>::kRowBytes));
  }

 private:
  int first_;
};

/// The thread's 16 elements, of two channels each, of a [tokens, heads, 128] tensor; zero past the
/// chunk's rows.
template <class Pair, class T>
__device__ void load_pairs(const T* from, const TokenStrides& strides, const BuilderTask& task,
                           int head, Pair (&to)[kBlock]) {
  static_assert(sizeof(Pair) == 2 * sizeof(T));
  const T* at = from + task.batch * strides.batch + (task.token + task.first_row) * strides.token +
                head * strides.head + task.channel;
  if (task.rows == kChunk) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i, at += strides.token)
      to[i] = *reinterpret_cast<const Pair*>(at);
    return;
  }
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    to[i] = Pair{};
    if (task.first_row + i < task.rows)
      to[i] = *reinterpret_cast<const Pair*>(at + i * strides.token);
  }
}

/// The thread's raw gates, or log decays.
__device__ inline void load_gates(const KdaPrefillProblem& p, const BuilderTask& task,
                                  float2 (&g)[kBlock]) {
  if (p.g_dtype == DType::kF32) {
    load_pairs(static_cast<const float*>(p.g), p.g_strides, task, task.head, g);
    return;
  }
  std::uint32_t pairs[kBlock];
  load_pairs(static_cast<const bf16*>(p.g), p.g_strides, task, task.head, pairs);
#pragma unroll
  for (int i = 0; i < kBlock; ++i) g[i] = unpack_bf16(pairs[i]);
}

/// Raw gates become log2 decays of the steps, at least kMinLog2Decay; none past the chunk's rows.
__device__ inline void activate_gates(const KdaPrefillProblem& p, const BuilderTask& task,
                                      float2 (&g)[kBlock]) {
  const auto bounded = [](float x) {
    float y;  // a NaN stays
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(kMinLog2Decay));
    return y;
  };
  const auto apply = [&](const auto& log2_decay) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i)
      g[i] = {bounded(log2_decay(g[i].x, 0)), bounded(log2_decay(g[i].y, 1))};
  };
  float bias[2] = {};
  if (p.dt_bias != nullptr) {
    const float* const at = p.dt_bias + task.head * kHeadDim + task.channel;
    bias[0] = at[0];
    bias[1] = at[1];
  }
  if (!p.gate_in_kernel) {
    apply([](float x, int) { return kLog2E * x; });
  } else if (p.has_lower_bound) {
    // lower_bound sigmoid(a (x + bias)), both exponentials to base 2
    const float slope = -kLog2E * gate_scale(p.A_log, task.head);
    const float bound = kLog2E * p.lower_bound;
    const float2 offset = {slope * bias[0], slope * bias[1]};
    apply([&](float x, int c) {
      return bound * reciprocal(1.0F + exp2_approx(fmaf(slope, x, c == 0 ? offset.x : offset.y)));
    });
  } else {
    const float a = gate_scale(p.A_log, task.head);
    apply([&](float x, int c) { return -a * kLog2E * softplus(x + bias[c]); });
  }
  if (task.rows == kChunk) return;
#pragma unroll
  for (int i = 0; i < kBlock; ++i)
    if (task.first_row + i >= task.rows) g[i] = {0.0F, 0.0F};
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

/// Scales of the block's rows: lane i has those of row i / 2.
struct RowScales {
  float q = 0.0F;  ///< scale / |q|
  float k = 0.0F;  ///< 1 / |k|
};

__device__ inline RowScales row_scales(const KdaPrefillProblem& p, const BuilderTask& task,
                                       const BuilderShared& shared) {
  if (!p.qk_l2norm) return {p.scale, 1.0F};
  const int row = task.first_row + task.lane / 2;
  const auto inverse_norm_of = [&](int which) {
    return rsqrtf(shared.sums[which][row][0] + shared.sums[which][row][1] + kKdaL2Eps);
  };
  return {p.scale * inverse_norm_of(0), inverse_norm_of(1)};
}

/// One step of sum_of_rows: a lane keeps half of its 2 kRows sums, those of the upper rows where
/// its bit says so.
template <int kRows>
__device__ void halve_rows(float (&sums)[kBlock], int lane) {
  const bool is_upper = (lane & (2 * kRows)) != 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float low = sums[i];
    const float high = sums[i + kRows];
    sums[i] =
        (is_upper ? high : low) + __shfl_xor_sync(kFullWarp, is_upper ? low : high, 2 * kRows);
  }
  if constexpr (kRows > 1) halve_rows<kRows / 2>(sums, lane);
}

/// Sums over the channels of a warp of x y, by rows: lane i has that of row i / 2 of its block.
__device__ inline float sum_of_rows(const std::uint32_t (&x)[kBlock],
                                    const std::uint32_t (&y)[kBlock], int lane) {
  float sums[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const float2 a = unpack_bf16(x[i]);
    const float2 b = unpack_bf16(y[i]);
    sums[i] = fmaf(a.y, b.y, a.x * b.x);
  }
  halve_rows<kBlock / 2>(sums, lane);
  return sums[0] + __shfl_xor_sync(kFullWarp, sums[0], 1);
}

}  // namespace k3::cuda
