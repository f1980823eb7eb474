// SPDX-License-Identifier: Apache-2.0
#include "cuda/attn_res_mix/attn_res_mix.h"

#include <algorithm>
#include <array>

#include "cuda/attn_res_mix/pieces.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/error.h"
#include "cuda/common/float4.cuh"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"

/// attn_res_mix for few tokens: a cluster of up to eight CTAs has a token, a thread eight columns
/// of it, all rows in registers. Every read of a token is on its way at once, spread over as many
/// SMs, and nothing is read twice.
///
///   1. Sums of squares and dots of the thread's columns, added over the warp and the CTA, which
///      sends them to every CTA of the cluster, 16 bytes a message.
///   2. Each warp adds up what has come, in the order of the CTAs, and has the weights. Mixture;
///      its squares go round in the same way.
///   3. Output norm.
///
/// Barriers:
///   cluster arrive/wait  every CTA has started and has armed its barriers
///   __syncthreads        `own_sums`, later `own_squares`, of all warps are written
///   sums_arrived         the sums of all CTAs of the cluster stand in `sums`
///   squares_arrived      their squares in `squares`
namespace k3::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = 8 * kThreads;  ///< of a CTA
constexpr int kMaxCluster = 8;
constexpr int kCtas = 6;  ///< an SM holds at least: 80 registers a thread
/// K3's width, whose clusters have a size that the compiler knows and no thread without columns.
constexpr int kHidden = 7168;
static_assert(kHidden % kColumns == 0);

template <int kRows>
struct ClusterSums {
  static constexpr int kCount = 2 * kRows;  ///< squares, dots
  static constexpr int kMessages = (kCount + 3) / 4;
  float4 values[kMessages];
};

template <int kRows>
struct ClusterShared {
  ClusterSums<kRows> sums[kMaxCluster];
  ClusterSums<kRows> own_sums[kWarps];
  float squares[kMaxCluster];
  float own_squares[kWarps];
  ByteBarrier sums_arrived;
  ByteBarrier squares_arrived;
};

/// The sum over `count` CTAs of what each has sent, `stride` floats apart, in their order.
__device__ inline float sum_of_ctas(const float* from, int stride, int count) {
  float sum = 0.0F;
#pragma unroll
  for (int r = 0; r < kMaxCluster; ++r)
    if (r < count) sum += from[r * stride];
  return sum;
}

/// grid (cluster size, tokens along y and z), clusters along x. kH: the width where it is K3's,
/// else 0.
template <int kRows, int kH>
__global__ __launch_bounds__(kThreads, kCtas) void attn_res_mix_cluster_kernel(
    const __grid_constant__ AttnResMixProblem p) {
  using Sums = ClusterSums<kRows>;
  __shared__ ClusterShared<kRows> shared;
  const std::int64_t t = blockIdx.y + std::int64_t{blockIdx.z} * gridDim.y;
  if (t >= p.T) return;
  const int H = kH > 0 ? kH : p.H;
  const int cluster_size = kH > 0 ? kH / kColumns : static_cast<int>(gridDim.x);
  const int rank = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int column = rank * kColumns + 8 * thread;
  const bool exists = kH > 0 || column < H;

  if (lane == 0) shared.own_sums[warp].values[Sums::kMessages - 1] = float4{0, 0, 0, 0};
  if (thread == 0) {
    arm(&shared.sums_arrived, static_cast<std::uint32_t>(cluster_size) * sizeof(Sums));
    arm(&shared.squares_arrived, static_cast<std::uint32_t>(cluster_size) * sizeof(float));
  }
  cluster_arrive_relaxed();
  const int columns = min(kColumns, H - rank * kColumns);
  if (thread < kRows && columns > 0)
    prefetch_l2(row_of<kRows>(p, t, thread) + rank * kColumns,
                static_cast<std::uint32_t>(columns) * 2);
  float c[8] = {};
  uint4 out_norm_weight = {};
  if (exists) {
    load_score_vector(p, column, c);
    out_norm_weight = *reinterpret_cast<const uint4*>(p.out_norm_weight + column);
  }

  pdl_wait();
  uint4 x[kRows];
#pragma unroll
  for (int j = 0; j < kRows; ++j)
    x[j] = exists ? *reinterpret_cast<const uint4*>(row_of<kRows>(p, t, j) + column)
                  : uint4{0, 0, 0, 0};
  // Not before: the next launch asks for rows as soon as it starts, and these are more urgent.
  pdl_launch_dependents();
  cluster_wait();
  float sums[Sums::kCount] = {};
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    add_scores(x[j], c, sums[j], sums[kRows + j]);
    keep_narrow(x[j]);
  }
  const float sum = warp::scatter_sums<Sums::kCount>(sums, lane);
  const int sum_index = warp::scattered_index<Sums::kCount>(lane);
  if (sum_index >= 0) reinterpret_cast<float*>(shared.own_sums[warp].values)[sum_index] = sum;
  __syncthreads();
  const int receiver = thread / Sums::kMessages;
  if (receiver < cluster_size) {
    const int message = thread % Sums::kMessages;
    float4 values = shared.own_sums[0].values[message];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) values = values + shared.own_sums[w].values[message];
    send(&shared.sums[rank].values[message], &shared.sums_arrived, receiver, values);
  }

  wait(&shared.sums_arrived);
  const float total = lane < Sums::kCount
                          ? sum_of_ctas(reinterpret_cast<const float*>(shared.sums) + lane,
                                        sizeof(Sums) / sizeof(float), cluster_size)
                          : 0.0F;
  float weights[kRows];
  softmax_of_totals<kRows>(total, 0, H, p.eps, weights);
  float mixed[8] = {};
#pragma unroll
  for (int j = 0; j < kRows; ++j) add_weighted(x[j], weights[j], mixed);
  const float squares = warp::sum(add_squares(mixed, 0.0F));
  if (lane == 0) shared.own_squares[warp] = squares;
  __syncthreads();
  if (thread < cluster_size) {
    float value = shared.own_squares[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) value += shared.own_squares[w];
    send(&shared.squares[rank], &shared.squares_arrived, thread, value);
  }
  if (p.write_prefix && exists)
    *reinterpret_cast<uint4*>(written_row(p, t) + column) = x[kRows - 1];

  wait(&shared.squares_arrived);
  const float scale = inverse_rms(sum_of_ctas(shared.squares, 1, cluster_size), H, p.eps);
  if (exists)
    __stcs(reinterpret_cast<uint4*>(p.out + t * p.out_stride + column),
           normed(mixed, scale, out_norm_weight));
}

template <int kRows>
cudaError_t launch_for(const AttnResMixProblem& p, const Target& target) {
  LaunchConfig config = launch_config(target);
  // Two CTAs at least: one alone makes no cluster, and cannot send to itself.
  config.cluster_size = std::max(2U, static_cast<unsigned>((p.H - 1) / kColumns + 1));
  config.grid = grid_over_requests(config.cluster_size, static_cast<int>(p.T));
  config.block = dim3(kThreads);
  return launch(p.H == kHidden ? attn_res_mix_cluster_kernel<kRows, kHidden>
                               : attn_res_mix_cluster_kernel<kRows, 0>,
                config, p);
}

}  // namespace

const char* attn_res_mix_vec8_refusal(const AttnResMixProblem& p, const Target&) {
  if (p.num_bank_rows > 8) return "more than 8 bank rows";
  if (p.H > kMaxCluster * kColumns) return "more than 8192 columns";
  constexpr std::int64_t kMaxTokens = std::int64_t{65535} * 32768;  // of grid_over_requests
  if (p.T > kMaxTokens) return "more than 65535 * 32768 tokens";
  return unaligned_row(p);
}

void attn_res_mix_cluster(const AttnResMixProblem& p, const Target& target) {
  static constexpr std::array kLaunches = {launch_for<1>, launch_for<2>, launch_for<3>,
                                           launch_for<4>, launch_for<5>, launch_for<6>,
                                           launch_for<7>, launch_for<8>, launch_for<9>};
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(kLaunches[p.num_bank_rows](p, target));
}

}  // namespace k3::cuda
