// SPDX-License-Identifier: Apache-2.0
#include "cuda/attn_res_mix/attn_res_mix.h"

#include <algorithm>
#include <array>

#include "cuda/attn_res_mix/pieces.cuh"
#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/mbarrier.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/device.h"

/// attn_res_mix for many tokens, H = 7168. One CTA an SM takes token after token, or kBatch of them
/// at once:
///
///   warps 0 .. 13  consumers: 448 threads with 16 columns each. A row goes from its slot to
///                  registers, which frees the slot; sums on the way. Then as in the formula.
///   warp 14        producer: one thread asks for row after row, 14336 bytes each, as slots free up
///
/// Barriers:
///   full[s]   producer (1 arrival + bytes) -> consumers: slot s holds its next row
///   empty[s]  consumers (14, one a warp) -> producer: slot s is in registers
///   named 1   consumers: `sums`, later `squares`, are written. Each of the two meetings also keeps
///             the next token's values from overwriting the other array before all have read it.
namespace k3::cuda {
namespace {

constexpr int kHidden = 7168;
/// Up to here the cluster is faster: the ring leaves SMs idle (docs/attn_res_mix.md).
constexpr std::int64_t kMaxClusterTokens = 112;
constexpr int kWarps = 14;  ///< of consumers
constexpr int kThreads = 32 * kWarps;
constexpr int kVectors = kHidden / 8;
static_assert(kVectors == 2 * kThreads);
constexpr int kSlots = 15;
constexpr std::uint32_t kRowBytes = kHidden * 2;
constexpr int kConsumerBarrier = 1;

/// Tokens that a CTA takes at once: with few rows a token it would only wait at barriers.
template <int kRows>
inline constexpr int kBatch = kRows <= 2 ? 3 : 1;

template <int kRows>
struct RingShared {
  static constexpr int kSums = 2 * kRows * kBatch<kRows>;
  uint4 rows[kSlots][kVectors];
  /// [token][squares of rows, dots of rows][warp]; the last two of a row stay 0. The pitch is odd
  /// in units of 16 bytes.
  alignas(16) float sums[kSums][20];
  alignas(16) float squares[kBatch<kRows>][16];  ///< of mixtures
  MBarrier full[kSlots];
  MBarrier empty[kSlots];
};

/// A position in the ring, and how often it has been round.
struct RingPlace {
  int slot = 0;
  unsigned round = 0;  ///< parity
  __device__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      round ^= 1;
    }
  }
};

template <int kRows>
__device__ void produce(const AttnResMixProblem& p, RingShared<kRows>& shared) {
  RingPlace at;
  for (std::int64_t t = blockIdx.x; t < p.T; t += gridDim.x)
    for (int j = 0; j < kRows; ++j, at.advance()) {
      mbarrier_wait(&shared.empty[at.slot], at.round ^ 1);
      mbarrier_expect(&shared.full[at.slot], kRowBytes);
      bulk_load(shared.rows[at.slot], row_of<kRows>(p, t, j), kRowBytes, &shared.full[at.slot]);
    }
}

/// The 16 floats of one row of `sums`, or of `squares`.
__device__ float sum_of_warps(const float* from) {
  const auto* const x = reinterpret_cast<const float4*>(from);
  const float4 a = x[0];
  const float4 b = x[1];
  const float4 c = x[2];
  const float4 d = x[3];
  return ((a.x + a.y + a.z + a.w) + (b.x + b.y + b.z + b.w)) +
         ((c.x + c.y + c.z + c.w) + (d.x + d.y + d.z + d.w));
}

template <int kRows>
__device__ void consume(const AttnResMixProblem& p, RingShared<kRows>& shared) {
  constexpr int kTokens = kBatch<kRows>;
  constexpr int kSums = RingShared<kRows>::kSums;
  const auto thread = threadIdx.x;
  const auto lane = thread % 32;
  const auto warp = thread / 32;
  const int sum_index = warp::scattered_index<kSums>(lane);
  float c[2][8];
  uint4 out_norm_weight[2];
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    const int column = 8 * static_cast<int>(thread + v * kThreads);
    load_score_vector(p, column, c[v]);
    out_norm_weight[v] = *reinterpret_cast<const uint4*>(p.out_norm_weight + column);
  }
  pdl_wait();

  RingPlace at;
  for (std::int64_t first = blockIdx.x; first < p.T; first += std::int64_t{kTokens} * gridDim.x) {
    const auto token = [&](int b) { return first + std::int64_t{b} * gridDim.x; };
    uint4 x[kTokens][kRows][2] = {};
    float sums[kSums] = {};
#pragma unroll
    for (int b = 0; b < kTokens; ++b) {
      if (token(b) >= p.T) continue;
#pragma unroll
      for (int j = 0; j < kRows; ++j, at.advance()) {
        mbarrier_wait(&shared.full[at.slot], at.round);
#pragma unroll
        for (int v = 0; v < 2; ++v) x[b][j][v] = shared.rows[at.slot][thread + v * kThreads];
        __syncwarp();
        if (lane == 0) mbarrier_arrive(&shared.empty[at.slot]);
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          add_scores(x[b][j][v], c[v], sums[2 * b * kRows + j], sums[(2 * b + 1) * kRows + j]);
          keep_narrow(x[b][j][v]);
        }
      }
    }
    const float sum = warp::scatter_sums<kSums>(sums, lane);
    if (sum_index >= 0) shared.sums[sum_index][warp] = sum;
    named_barrier_sync(kConsumerBarrier, kThreads);

    const float total = lane < kSums ? sum_of_warps(shared.sums[lane]) : 0.0F;
    float mixed[kTokens][2][8] = {};
#pragma unroll
    for (int b = 0; b < kTokens; ++b) {
      float weights[kRows];
      softmax_of_totals<kRows>(total, 2 * b * kRows, kHidden, p.eps, weights);
      float squares = 0.0F;
#pragma unroll
      for (int v = 0; v < 2; ++v) {
#pragma unroll
        for (int j = 0; j < kRows; ++j) add_weighted(x[b][j][v], weights[j], mixed[b][v]);
        squares = add_squares(mixed[b][v], squares);
        if (p.write_prefix && token(b) < p.T)
          *reinterpret_cast<uint4*>(written_row(p, token(b)) +
                                    8 * static_cast<int>(thread + v * kThreads)) =
              x[b][kRows - 1][v];
      }
      squares = warp::sum(squares);
      if (lane == 0) shared.squares[b][warp] = squares;
    }
    named_barrier_sync(kConsumerBarrier, kThreads);

#pragma unroll
    for (int b = 0; b < kTokens; ++b) {
      if (token(b) >= p.T) continue;
      const float scale = inverse_rms(sum_of_warps(shared.squares[b]), kHidden, p.eps);
#pragma unroll
      for (int v = 0; v < 2; ++v)
        __stcs(reinterpret_cast<uint4*>(p.out + token(b) * p.out_stride) + thread + v * kThreads,
               normed(mixed[b][v], scale, out_norm_weight[v]));
    }
  }
}

template <int kRows>
__global__ __launch_bounds__(kThreads + 32, 1) void attn_res_mix_ring_kernel(
    const __grid_constant__ AttnResMixProblem p) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<RingShared<kRows>*>(memory);
  pdl_launch_dependents();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kSlots; ++s) {
      mbarrier_init(&shared.full[s], 1);
      mbarrier_init(&shared.empty[s], kWarps);
    }
    mbarrier_publish_inits();
  }
  if (threadIdx.x < RingShared<kRows>::kSums)
    shared.sums[threadIdx.x][14] = shared.sums[threadIdx.x][15] = 0.0F;
  if (threadIdx.x < kBatch<kRows>)
    shared.squares[threadIdx.x][14] = shared.squares[threadIdx.x][15] = 0.0F;
  __syncthreads();  // barriers and zeros stand
  if (threadIdx.x < kThreads) {
    consume<kRows>(p, shared);
  } else if (warp::elect()) {
    pdl_wait();
    produce<kRows>(p, shared);
  }
}

template <int kRows>
cudaError_t launch_for(const AttnResMixProblem& p, const Target& target) {
  LaunchConfig config = launch_config(target);
  config.grid = dim3(
      static_cast<unsigned>(std::min<std::int64_t>(p.T, properties(target.device.index).num_sms)));
  config.block = dim3(kThreads + 32);
  config.dynamic_smem_bytes = sizeof(RingShared<kRows>);
  return launch(attn_res_mix_ring_kernel<kRows>, config, p);
}

}  // namespace

void attn_res_mix_ring(const AttnResMixProblem& p, const Target& target) {
  static constexpr std::array kLaunches = {launch_for<1>, launch_for<2>, launch_for<3>,
                                           launch_for<4>, launch_for<5>, launch_for<6>,
                                           launch_for<7>, launch_for<8>, launch_for<9>};
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(kLaunches[p.num_bank_rows](p, target));
}

void attn_res_mix_vec8(const AttnResMixProblem& p, const Target& target) {
  if (p.T == 0) return;
  if (p.H == kHidden && p.T > kMaxClusterTokens)
    attn_res_mix_ring(p, target);
  else
    attn_res_mix_cluster(p, target);
}

}  // namespace k3::cuda
