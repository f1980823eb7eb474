// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "cuda/attn_res_mix/attn_res_mix.h"
#include "cuda/attn_res_mix/pieces.cuh"
#include "cuda/common/async_copy.cuh"
#include "cuda/common/bf16_vector.cuh"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/mbarrier.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/device.h"

/// attn_res_mix for many tokens, H = 7168: a CTA takes a token and leaves; two or four share an SM,
/// so that one computes while the rows of another are on their way.
///
/// 224 threads with four times eight columns each. All rows are asked for at once: the last kHeld
/// to registers, the others to `staged` in shared memory, of which a thread reads only what it has
/// copied itself. So no warp waits for another before the sums.
///
///   1. Sums of squares and dots, row after row as they come; over the warp, then over the CTA.
///   2. Each warp has the weights. Mixture, from the rows on the chip; its squares in the same way.
///   3. Output norm.
///
/// Barriers: __syncthreads, once `sums` of all warps are written, and once `squares` are.
namespace k3::cuda {
namespace {

constexpr int kHidden = 7168;
constexpr int kWarps = 7;
constexpr int kThreads = 32 * kWarps;
constexpr int kVectors = 4;  ///< of eight columns, of a thread
static_assert(8 * kThreads * kVectors == kHidden);

/// What follows from the number of rows, the prefix among them; measured: docs/attn_res_mix.md.
template <int kRows>
struct CtaPlan {
  /// Few rows: twice the CTAs, so half the registers; weights come from the L1 when they are used.
  static constexpr bool kFew = kRows <= 3;
  static constexpr int kCtas = kFew ? 4 : 2;                   ///< an SM holds
  static constexpr int kHeld = kFew ? 0 : 2;                   ///< rows in registers
  static constexpr int kStaged = kRows - kHeld;                ///< rows in shared memory
  static constexpr int kAhead = kFew ? kRows : kRows * 2 / 3;  ///< rows asked for as far as the L2
  static constexpr int kCtasAhead = kFew ? kCtas : 1;          ///< of an SM, that ask for them
};

template <int kRows>
struct CtaSums {
  static constexpr int kCount = 2 * kRows;
  /// [squares, dots][warp]; the last of the eight stays 0. The pitch is odd in units of 16 bytes.
  alignas(16) float sums[kCount][12];
  alignas(16) float squares[8];  ///< of the mixture
};

__device__ int column_of(int v) { return 8 * (static_cast<int>(threadIdx.x) + v * kThreads); }

/// The eight floats of one row of `sums`, or `squares`.
__device__ float sum_of_warps(const float* from) {
  const auto* const x = reinterpret_cast<const float4*>(from);
  const float4 a = x[0];
  const float4 b = x[1];
  return ((a.x + b.x) + (a.y + b.y)) + ((a.z + b.z) + (a.w + b.w));
}

/// Where this thread has its columns of a row in shared memory.
__device__ uint4* staged_at(uint4* staged, int row, int v) {
  return staged + (row * kVectors + v) * kThreads + static_cast<int>(threadIdx.x);
}

/// A token's rows on the chip.
template <int kRows>
struct Rows {
  static constexpr int kStaged = CtaPlan<kRows>::kStaged;
  static constexpr int kHeld = CtaPlan<kRows>::kHeld;
  uint4* staged;
  uint4 held[kHeld > 0 ? kHeld : 1][kVectors];

  /// One group of copies a staged row. The L1 is left to the weights.
  __device__ void ask_for(const AttnResMixProblem& p, std::int64_t t) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        held[j][v] = load_past_l1(row_of<kRows>(p, t, kStaged + j) + column_of(v));
#pragma unroll
    for (int j = 0; j < kStaged; ++j) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        copy_async_16(shared_address(staged_at(staged, j, v)),
                      row_of<kRows>(p, t, j) + column_of(v), true);
      commit_async_copies();
    }
  }

  __device__ uint4 at(int j, int v) const {
    return j < kStaged ? *staged_at(staged, j, v) : held[kHeld > 0 ? j - kStaged : 0][v];
  }

  /// Scores row after row, in the order in which they come.
  __device__ void score(const float (&c)[kVectors][8], float (&sums)[2 * kRows]) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        add_scores(held[j][v], c[v], sums[kStaged + j], sums[kRows + kStaged + j]);
        keep_narrow(held[j][v]);
      }
    [&]<int... j>(std::integer_sequence<int, j...>) {
      (score_staged<j>(c, sums), ...);
    }(std::make_integer_sequence<int, kStaged>{});
  }
  template <int j>
  __device__ void score_staged(const float (&c)[kVectors][8], float (&sums)[2 * kRows]) {
    wait_for_async_copies<kStaged - 1 - j>();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) add_scores(at(j, v), c[v], sums[j], sums[kRows + j]);
  }

  /// Scores all rows eight columns at a time, with as much of c in registers.
  __device__ void score_by_columns(const AttnResMixProblem& p, float (&sums)[2 * kRows]) {
    static_assert(kHeld == 0);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float c[8];
      load_score_vector(p, column_of(v), c);
      if (v == 0) wait_for_async_copies();
#pragma unroll
      for (int j = 0; j < kRows; ++j) add_scores(at(j, v), c, sums[j], sums[kRows + j]);
    }
  }
};

__device__ void load_out_norm_weight(const AttnResMixProblem& p, uint4 (&weight)[kVectors]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    weight[v] = *reinterpret_cast<const uint4*>(p.out_norm_weight + column_of(v));
}

/// grid (tokens). The first `ctas_ahead` CTAs may start while the predecessor still runs.
template <int kRows>
__global__ __launch_bounds__(kThreads, CtaPlan<kRows>::kCtas) void attn_res_mix_cta_kernel(
    const __grid_constant__ AttnResMixProblem p, unsigned ctas_ahead) {
  using Plan = CtaPlan<kRows>;
  using Sums = CtaSums<kRows>;
  extern __shared__ __align__(16) uint4 staged[];
  __shared__ Sums shared;
  const std::int64_t t = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;

  if (blockIdx.x < ctas_ahead) {
    constexpr int kLineElements = 64;
    constexpr int kLines = kHidden / kLineElements;
    for (int i = thread; i < Plan::kAhead * kLines; i += kThreads)
      prefetch_l2(row_of<kRows>(p, t, i / kLines) + i % kLines * kLineElements);
  }
  if (thread < Sums::kCount) shared.sums[thread][kWarps] = 0.0F;
  if (thread == 0) shared.squares[kWarps] = 0.0F;
  float c[kVectors][8];
  uint4 out_norm_weight[kVectors];
  if constexpr (!Plan::kFew) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) load_score_vector(p, column_of(v), c[v]);
    load_out_norm_weight(p, out_norm_weight);
  }

  pdl_wait();
  // With more rows, those of this launch are asked for before the next one may ask ahead.
  if constexpr (Plan::kFew) pdl_launch_dependents();
  Rows<kRows> rows{staged};
  rows.ask_for(p, t);
  if constexpr (!Plan::kFew) pdl_launch_dependents();
  float sums[Sums::kCount] = {};
  if constexpr (Plan::kFew) {
    rows.score_by_columns(p, sums);
    load_out_norm_weight(p, out_norm_weight);
  } else {
    rows.score(c, sums);
  }
  const float sum = warp::scatter_sums<Sums::kCount>(sums, lane);
  const int sum_index = warp::scattered_index<Sums::kCount>(lane);
  if (sum_index >= 0) shared.sums[sum_index][warp] = sum;
  __syncthreads();

  const float total = lane < Sums::kCount ? sum_of_warps(shared.sums[lane]) : 0.0F;
  float weights[kRows];
  softmax_of_totals<kRows>(total, 0, kHidden, p.eps, weights);
  float mixed[kVectors][8] = {};
  float squares = 0.0F;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int j = 0; j < kRows; ++j) add_weighted(rows.at(j, v), weights[j], mixed[v]);
    if (p.write_prefix)
      *reinterpret_cast<uint4*>(written_row(p, t) + column_of(v)) = rows.at(kRows - 1, v);
    squares = add_squares(mixed[v], squares);
  }
  squares = warp::sum(squares);
  if (lane == 0) shared.squares[warp] = squares;
  __syncthreads();

  const float scale = inverse_rms(sum_of_warps(shared.squares), kHidden, p.eps);
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    __stcs(reinterpret_cast<uint4*>(p.out + t * p.out_stride + column_of(v)),
           normed(mixed[v], scale, out_norm_weight[v]));
}

template <int kRows>
cudaError_t launch_for(const AttnResMixProblem& p, const Target& target) {
  using Plan = CtaPlan<kRows>;
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(p.T));
  config.block = dim3(kThreads);
  config.dynamic_smem_bytes = sizeof(uint4) * Plan::kStaged * kVectors * kThreads;
  const int ctas_ahead =
      target.pdl ? properties(target.device.index).num_sms * Plan::kCtasAhead : 0;
  return launch(attn_res_mix_cta_kernel<kRows>, config, p, static_cast<unsigned>(ctas_ahead));
}

/// Whether a CTA a token is faster than a cluster (docs/attn_res_mix.md).
bool has_many_tokens(const AttnResMixProblem& p) { return p.T > (p.num_bank_rows <= 2 ? 128 : 96); }

}  // namespace

void attn_res_mix_cta(const AttnResMixProblem& p, const Target& target) {
  static constexpr std::array kLaunches = {launch_for<1>, launch_for<2>, launch_for<3>,
                                           launch_for<4>, launch_for<5>, launch_for<6>,
                                           launch_for<7>, launch_for<8>, launch_for<9>};
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(kLaunches[p.num_bank_rows](p, target));
}

void attn_res_mix_vec8(const AttnResMixProblem& p, const Target& target) {
  if (p.T == 0) return;
  if (p.H == kHidden && has_many_tokens(p))
    attn_res_mix_cta(p, target);
  else
    attn_res_mix_cluster(p, target);
}

}  // namespace k3::cuda
