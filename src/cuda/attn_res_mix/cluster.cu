// SPDX-License-Identifier: Apache-2.0
#include "cuda/attn_res_mix/attn_res_mix.h"

#include <algorithm>
#include <array>

#include "cuda/attn_res_mix/pieces.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/device.h"

/// attn_res_mix for few tokens: a cluster of up to eight CTAs has a token, a thread eight columns
/// of it, all rows in registers. Every read of a token is on its way at once, spread over as many
/// SMs, and nothing is read twice.
///
///   1. Sums of squares and dots of the thread's columns, added over the warp; each warp sends its
///      own to every CTA of the cluster. No barrier within the CTA: its own warps send, too.
///   2. Each warp adds up what has come, in the order of the warps of the cluster, and has the
///      weights. Mixture; the warps send its squares in the same way.
///   3. Output norm.
///
/// Barriers:
///   cluster arrive/wait  every CTA has started and has armed its barriers
///   sums_arrived         the sums of step 1 of all warps of the cluster stand in `sums`
///   squares_arrived      the squares of step 2 in `squares`
/// Each of the two guards the other's memory from the next token's: a warp sends its sums of a
/// token when it has all squares of the last, so all warps have read that one's sums.
namespace k3::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = 8 * kThreads;  ///< of a CTA
constexpr int kMaxCluster = 8;
constexpr int kMaxSources = kMaxCluster * kWarps;

template <int kRows>
struct ClusterShared {
  /// [2 rows: squares, dots][warp of the cluster]; the odd pitch in units of 16 bytes keeps lanes
  /// that read a row each out of each other's banks.
  alignas(16) float sums[2 * kRows][kMaxSources + 4];
  alignas(16) float squares[kMaxSources];
  ByteBarrier sums_arrived;
  ByteBarrier squares_arrived;
};

/// Four chains, one a warp of each CTA, joined at the end.
__device__ float sum_of_sources(const float* from, int cluster_size) {
  float4 sum = *reinterpret_cast<const float4*>(from);
  for (int i = 1; i < cluster_size; ++i) {
    const float4 x = reinterpret_cast<const float4*>(from)[i];
    sum.x += x.x;
    sum.y += x.y;
    sum.z += x.z;
    sum.w += x.w;
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

template <int kRows>
__device__ void load_rows(const AttnResMixProblem& p, std::int64_t t, int column, bool exists,
                          uint4 (&x)[kRows]) {
#pragma unroll
  for (int j = 0; j < kRows; ++j)
    x[j] = exists ? *reinterpret_cast<const uint4*>(row_of<kRows>(p, t, j) + column)
                  : uint4{0, 0, 0, 0};
}

/// grid (cluster size, tokens at once), clusters along x.
template <int kRows, int kMin>
__global__ __launch_bounds__(kThreads, kMin) void attn_res_mix_cluster_kernel(
    const __grid_constant__ AttnResMixProblem p) {
  __shared__ ClusterShared<kRows> shared;
  constexpr int kSums = 2 * kRows;
  const int rank = static_cast<int>(blockIdx.x);
  const int cluster_size = static_cast<int>(gridDim.x);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int source = rank * kWarps + static_cast<int>(threadIdx.x / 32);
  const int column = rank * kColumns + 8 * static_cast<int>(threadIdx.x);
  const bool exists = column < p.H;
  const auto source_bytes =
      static_cast<std::uint32_t>(cluster_size * kWarps) * std::uint32_t{sizeof(float)};
  const int sum_index = warp::scattered_index<kSums>(lane);

  if (threadIdx.x == 0) {
    arm(&shared.sums_arrived, kSums * source_bytes);
    arm(&shared.squares_arrived, source_bytes);
  }
  cluster_arrive_relaxed();
  pdl_launch_dependents();
  std::int64_t t = blockIdx.y;
  if (threadIdx.x < kRows) {
    const int part = min(kColumns, p.H - rank * kColumns);
    prefetch_l2(row_of<kRows>(p, t, static_cast<int>(threadIdx.x)) + rank * kColumns,
                static_cast<std::uint32_t>(part) * 2);
  }
  float c[8] = {};
  uint4 out_norm_weight = {};
  if (exists) {
    load_score_vector(p, column, c);
    out_norm_weight = *reinterpret_cast<const uint4*>(p.out_norm_weight + column);
  }

  pdl_wait();
  uint4 x[kRows];
  load_rows<kRows>(p, t, column, exists, x);
  cluster_wait();
  for (unsigned parity = 0;; parity ^= 1) {
    float sums[kSums] = {};
#pragma unroll
    for (int j = 0; j < kRows; ++j) add_scores(x[j], c, sums[j], sums[kRows + j]);
    const float sum = warp::scatter_sums<kSums>(sums, lane);
    if (sum_index >= 0)
      for (int r = 0; r < cluster_size; ++r)
        send(&shared.sums[sum_index][source], &shared.sums_arrived, r, sum);

#pragma unroll
    for (uint4& row : x) keep_narrow(row);
    wait(&shared.sums_arrived, parity);
    const float total = lane < kSums ? sum_of_sources(shared.sums[lane], cluster_size) : 0.0F;
    float weights[kRows];
    softmax_of_totals<kRows>(total, p.H, p.eps, weights);
    float mixed[8] = {};
#pragma unroll
    for (int j = 0; j < kRows; ++j) add_weighted(x[j], weights[j], mixed);
    const float squares = warp::sum(add_squares(mixed, 0.0F));
    if (lane < cluster_size) send(&shared.squares[source], &shared.squares_arrived, lane, squares);
    if (p.write_prefix && exists)
      *reinterpret_cast<uint4*>(written_row(p, t) + column) = x[kRows - 1];

    const std::int64_t next = t + gridDim.y;
    const bool last = next >= p.T;
    if (!last) {
      load_rows<kRows>(p, next, column, exists, x);
      if (threadIdx.x == 0) mbarrier_expect(&shared.sums_arrived, kSums * source_bytes);
    }
    wait(&shared.squares_arrived, parity);
    const float scale = inverse_rms(sum_of_sources(shared.squares, cluster_size), p.H, p.eps);
    if (exists)
      __stcs(reinterpret_cast<uint4*>(p.out + t * p.out_stride + column),
             normed(mixed, scale, out_norm_weight));
    if (last) return;
    if (threadIdx.x == 0) mbarrier_expect(&shared.squares_arrived, source_bytes);
    t = next;
  }
}

template <int kRows, bool kResident, int kMin>
cudaError_t launch_for(const AttnResMixProblem& p, const Target& target) {
  std::int64_t kMaxTokensAtOnce = 65535;
  if (kResident) {
    int ctas = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, attn_res_mix_cluster_kernel<kRows, kMin>,
                                                  kThreads, 0);
    kMaxTokensAtOnce = ctas * properties(target.device.index).num_sms / ((p.H - 1) / kColumns + 1);
  }
  LaunchConfig config;
  config.cluster_size = static_cast<unsigned>((p.H - 1) / kColumns + 1);
  config.grid = dim3(config.cluster_size, static_cast<unsigned>(std::min(p.T, kMaxTokensAtOnce)));
  config.block = dim3(kThreads);
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  return launch(attn_res_mix_cluster_kernel<kRows, kMin>, config, p);
}

}  // namespace

const char* attn_res_mix_cluster_refusal(const AttnResMixProblem& p, const Target&) {
  if (p.num_bank_rows > 8) return "more than 8 bank rows";
  if (p.H > kMaxCluster * kColumns) return "more than 8192 columns";
  return unaligned_row(p);
}

template <bool kR, int kMin>
void run(const AttnResMixProblem& p, const Target& target) {
  if (p.T == 0) return;
  static constexpr std::array kLaunches = {
      launch_for<1, kR, kMin>, launch_for<2, kR, kMin>, launch_for<3, kR, kMin>,
      launch_for<4, kR, kMin>, launch_for<5, kR, kMin>, launch_for<6, kR, kMin>,
      launch_for<7, kR, kMin>, launch_for<8, kR, kMin>, launch_for<9, kR, kMin>};
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(kLaunches[p.num_bank_rows](p, target));
}

void attn_res_mix_cluster(const AttnResMixProblem& p, const Target& target) {
  run<false, 1>(p, target);
}
void attn_res_mix_cluster_resident(const AttnResMixProblem& p, const Target& target) {
  run<true, 1>(p, target);
}
void attn_res_mix_cluster_tight(const AttnResMixProblem& p, const Target& target) {
  run<false, 6>(p, target);
}
void attn_res_mix_cluster_tight_resident(const AttnResMixProblem& p, const Target& target) {
  run<true, 6>(p, target);
}
}  // namespace k3::cuda
