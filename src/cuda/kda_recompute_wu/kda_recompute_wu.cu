// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_recompute_wu/kda_recompute_wu.h"

#include <algorithm>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/kda/quad.cuh"
#include "cuda/kda/sequences.cuh"
#include "cuda/kda_recompute_wu/mma.cuh"

/// One CTA a (chunk, value head): w = (A beta) (k exp(g)), u = (A beta) v.
///
///   warps 0-7  all load, eight elements of a row a thread; then warp i makes columns 16 i ..
///              16 i + 15 of w and u, all four tiles of 16 rows
///   beta       alive until A is there
///   A, K       fp32 values as a sum of two bf16 ones, high + low; zeros above the diagonal of A
///              and in rows past the sequence's end, in V too
///
/// Products, high and low: 2^-18 of a value is lost in each split, and as much with low x low,
/// which is left out. Sums fp32, one rounding to bf16 at the end.
namespace k3::cuda {
namespace {

constexpr int kC = kKdaChunkTokens;
constexpr int kD = kKdaHeadDim;
constexpr int kThreads = 256;
constexpr int kCtasPerSm = 2;  ///< 128 registers a thread, 70 KB of shared memory each
constexpr int kTile = 16;
constexpr int kEight = 8;  ///< elements a thread moves at once: 16 bytes of bf16
static_assert(kThreads / 32 * kTile == kD, "a warp has 16 columns");

/// Rows of shared memory: 4 words mod 32, so that eight consecutive rows of 16 bytes, which
/// ldmatrix reads at once, lie in different banks.
constexpr int kPitchA = kC + 8;
constexpr int kPitch = kD + 8;

struct Shared {
  alignas(16) bf16 A_high[kC][kPitchA];
  alignas(16) bf16 A_low[kC][kPitchA];
  alignas(16) bf16 K_high[kC][kPitch];
  alignas(16) bf16 K_low[kC][kPitch];
  alignas(16) bf16 V[kC][kPitch];
  alignas(16) float beta[kC];
};

/// Eight values of a row, as two quads.
struct Eight {
  float4 low;
  float4 high;
};

__device__ inline Eight load_eight(const float* from) {
  return {QuadAccess<true>::load(from), QuadAccess<true>::load(from + 4)};
}
__device__ inline Eight load_eight(const bf16* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  return {widen(Bf16Quad{raw.x, raw.y}), widen(Bf16Quad{raw.z, raw.w})};
}
__device__ inline Eight product(const Eight& a, const Eight& b) {
  return {a.low * b.low, a.high * b.high};
}
/// What rounding to bf16 takes away.
__device__ inline float4 rounded_off(float4 x) {
  const float4 kept = round_to_bf16(x);
  return {x.x - kept.x, x.y - kept.y, x.z - kept.z, x.w - kept.w};
}
__device__ inline void store_eight(const Eight& x, bf16* to) {
  const Bf16Quad low = narrow(x.low);
  const Bf16Quad high = narrow(x.high);
  *reinterpret_cast<uint4*>(to) = {low.x, low.y, high.x, high.y};
}
/// x = high + low, to 16 bits.
__device__ inline void store_split(const Eight& x, bf16* high, bf16* low) {
  store_eight(x, high);
  store_eight({rounded_off(x.low), rounded_off(x.high)}, low);
}

/// Calls body(row, column) for the first elements of all runs of eight in kC rows of kColumns.
template <int kColumns, class Body>
__device__ void for_eights(const Body& body) {
  constexpr int kRuns = kColumns / kEight;
#pragma unroll
  for (int at = 0; at < kC * kRuns; at += kThreads) {
    const int run = at + static_cast<int>(threadIdx.x);
    body(run / kRuns, run % kRuns * kEight);
  }
}

__device__ void load_beta(const KdaRecomputeWuProblem& p, std::int64_t offset, int rows,
                          Shared& s) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kC) return;
  const std::int64_t at = offset + i * p.beta_strides.token;
  if (p.beta == nullptr || i >= rows)
    s.beta[i] = 1.0F;
  else if (p.beta_dtype == DType::kF32)
    s.beta[i] = static_cast<const float*>(p.beta)[at];
  else
    s.beta[i] = widen(static_cast<const bf16*>(p.beta)[at]);
}

/// By select: what stands above the diagonal or past the end may be NaN.
template <class T>
__device__ void load_matrix(const T* from, std::int64_t stride, int rows, Shared& s) {
  for_eights<kC>([&](int row, int column) {
    Eight x = {};
    if (row < rows && column <= row) {
      const Eight beta = {*reinterpret_cast<const float4*>(s.beta + column),
                          *reinterpret_cast<const float4*>(s.beta + column + 4)};
      x = product(load_eight(from + row * stride + column), beta);
      const int kept = row - column;  // of the eight, up to this one
      x.low = {x.low.x, kept >= 1 ? x.low.y : 0.0F, kept >= 2 ? x.low.z : 0.0F,
               kept >= 3 ? x.low.w : 0.0F};
      x.high = {kept >= 4 ? x.high.x : 0.0F, kept >= 5 ? x.high.y : 0.0F,
                kept >= 6 ? x.high.z : 0.0F, kept >= 7 ? x.high.w : 0.0F};
    }
    store_split(x, &s.A_high[row][column], &s.A_low[row][column]);
  });
}

__device__ void load_keys(const bf16* k, std::int64_t k_stride, const float* g,
                          std::int64_t g_stride, int rows, Shared& s) {
  for_eights<kD>([&](int row, int column) {
    Eight x = {};
    if (row < rows) {
      const Eight gate = load_eight(g + row * g_stride + column);
      const auto exp_of = [](float e) { return expf(e); };
      const Eight decay = {map(gate.low, exp_of), map(gate.high, exp_of)};
      x = product(load_eight(k + row * k_stride + column), decay);
    }
    store_split(x, &s.K_high[row][column], &s.K_low[row][column]);
  });
}

__device__ void load_values(const bf16* v, std::int64_t stride, int rows, Shared& s) {
  for_eights<kD>([&](int row, int column) {
    uint4 x = {};
    if (row < rows) x = *reinterpret_cast<const uint4*>(v + row * stride + column);
    *reinterpret_cast<uint4*>(&s.V[row][column]) = x;
  });
}

/// The rows of a tile that exist, in the warp's columns. `to` is at the tile's first element.
__device__ void store_sums(const SumTile& sum, bf16* to, std::int64_t stride, int rows, int lane) {
#pragma unroll
  for (int lower = 0; lower < 2; ++lower) {
    const int row = lane / 4 + 8 * lower;
    if (row >= rows) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      *reinterpret_cast<std::uint32_t*>(to + row * stride + 8 * h + lane % 4 * 2) =
          pack_bf16(sum.half[h].c[2 * lower], sum.half[h].c[2 * lower + 1]);
    }
  }
}

/// One warp's 16 columns of w and u. `w` and `u` are at the chunk's first row of the head.
__device__ void multiply(const Shared& s, bf16* w, std::int64_t w_stride, bf16* u,
                         std::int64_t u_stride, int rows) {
  constexpr int kTiles = kC / kTile;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int column = static_cast<int>(threadIdx.x) / 32 * kTile;
  SumTile w_sum[kTiles];
  SumTile u_sum[kTiles];
#pragma unroll
  for (int k = 0; k < kTiles; ++k) {
    const Bf16Tile K_high = load_right(&s.K_high[k * kTile][column], kPitch, lane);
    const Bf16Tile K_low = load_right(&s.K_low[k * kTile][column], kPitch, lane);
    const Bf16Tile V = load_right(&s.V[k * kTile][column], kPitch, lane);
#pragma unroll
    for (int i = k; i < kTiles; ++i) {
      const Bf16Tile A_high = load_left(&s.A_high[i * kTile][k * kTile], kPitchA, lane);
      const Bf16Tile A_low = load_left(&s.A_low[i * kTile][k * kTile], kPitchA, lane);
      multiply_add(A_low, K_high, w_sum[i]);
      multiply_add(A_high, K_low, w_sum[i]);
      multiply_add(A_high, K_high, w_sum[i]);
      multiply_add(A_low, V, u_sum[i]);
      multiply_add(A_high, V, u_sum[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    const int first = i * kTile;
    store_sums(w_sum[i], w + first * w_stride + column, w_stride, rows - first, lane);
    store_sums(u_sum[i], u + first * u_stride + column, u_stride, rows - first, lane);
  }
}

template <class AT>
__global__ __launch_bounds__(kThreads, kCtasPerSm) void kda_recompute_wu_kernel(
    const __grid_constant__ KdaRecomputeWuProblem p, std::int64_t num_tasks) {
  extern __shared__ __align__(16) std::byte memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  pdl_launch_dependents();
  pdl_wait();
  for (std::int64_t task = blockIdx.x; task < num_tasks; task += gridDim.x) {
    const Chunk chunk = device_chunk_of_slot(p.sequences, task / p.HV);
    if (chunk.rows == 0) continue;
    const int head = static_cast<int>(task % p.HV);
    const auto at = [&](const TokenStrides& strides, int h) {
      return chunk.batch * strides.batch + chunk.token * strides.token + h * strides.head;
    };
    load_beta(p, at(p.beta_strides, head), chunk.rows, s);
    load_keys(p.k + at(p.k_strides, head / (p.HV / p.H)), p.k_strides.token,
              p.g + at(p.g_strides, head), p.g_strides.token, chunk.rows, s);
    load_values(p.v + at(p.v_strides, head), p.v_strides.token, chunk.rows, s);
    __syncthreads();  // beta is there
    load_matrix(static_cast<const AT*>(p.A) + at(p.A_strides, head), p.A_strides.token, chunk.rows,
                s);
    __syncthreads();  // all operands are there
    multiply(s, p.w + at(p.w_strides, head), p.w_strides.token, p.u + at(p.u_strides, head),
             p.u_strides.token, chunk.rows);
    __syncthreads();  // the operands may go
  }
}

template <class AT>
void run(const KdaRecomputeWuProblem& p, const Target& target) {
  constexpr std::int64_t kMaxGrid = std::int64_t{1} << 30;
  const std::int64_t num_tasks = p.sequences.num_chunk_slots() * p.HV;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(std::min(num_tasks, kMaxGrid)));
  config.block = dim3(kThreads);
  config.dynamic_smem_bytes = sizeof(Shared);
  K3_CUDA_CHECK(launch(kda_recompute_wu_kernel<AT>, config, p, num_tasks));
}

}  // namespace

void kda_recompute_wu(const KdaRecomputeWuProblem& p, const Target& target) {
  if (p.sequences.N == 0 || p.sequences.T == 0) return;
  if (p.A_dtype == DType::kF32)
    run<float>(p, target);
  else
    run<bf16>(p, target);
}

}  // namespace k3::cuda
