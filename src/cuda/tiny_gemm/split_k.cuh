// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/tiny_gemm/tile.cuh"

/// The variant for long rows. The CTAs of a cluster make the same columns, each from its own part
/// of k; eight warps of a CTA divide that part once more. All of w is on its way before anything
/// waits for the previous kernel, and two launches fit the SMs side by side, so that the memory
/// never rests.
///
///   w         global -> shared by bulk copies, a row of the part each, before pdl_wait; by warp 0
///   at
///             once, or by a warp of its own, kWindow tiles at a time, so that x need not queue
///             behind the next launch's w. Rows are 64 bytes more than a multiple of 128 apart: no
///             two lanes of a chunk meet in a bank
///   x         global -> registers after pdl_wait, each element once a CTA
///   sums      of the warps: over w, once all have read it; of the CTA: in the order of its warps,
///             sent to the CTA that owns the tile; of the cluster: in the order of its CTAs
///   full      of each tile, one phase: its rows of w are here
///   arrived   one phase: the sums of this CTA's own tiles are here from all CTAs. Armed before the
///             cluster barrier, which every thread passes long before the first sending
///
/// A launch runs every instruction about once, so their number counts: no loop has versions.
namespace k3::cuda {

inline constexpr int kSplitKWarps = 8;

struct SplitKPlan {
  int rows;             ///< of w a CTA, at most kTiles * 8 and even
  int chunks_per_cta;   ///< as many in each CTA of a cluster hold K
  int chunks_per_warp;  ///< the last ones may have fewer
  int pitch;            ///< of rows of w in shared memory, in 16 bytes
};

/// @tparam kTiles_     of columns a CTA, at most kSplitKWarps
/// @tparam kChunks_    whose x a warp holds at once
/// @tparam kCluster_   CTAs that share columns
/// @tparam kWindow_    tiles on their way at once
template <int kTiles_, int kChunks_, int kCluster_, int kWindow_ = kTiles_>
struct SplitKTraits {
  static constexpr int kTiles = kTiles_;
  static constexpr int kChunks = kChunks_;
  static constexpr int kCluster = kCluster_;
  static constexpr int kWindow = kWindow_;
  static constexpr bool kHasLoader = kWindow < kTiles;  ///< a warp for w alone
  static constexpr int kThreads = 32 * (kSplitKWarps + (kHasLoader ? 1 : 0));
  static constexpr int kChains = kTiles == 1 ? 4 : kTiles < 4 ? 2 : 1;
  static constexpr int kOwnTiles = (kTiles - 1) / kCluster + 1;

  /// Of shared memory: w, later the sums of the warps.
  __host__ __device__ static int weights_bytes(const SplitKPlan& plan) {
    const int weights = 16 * plan.rows * plan.pitch;
    constexpr int kSums = 512 * kSplitKWarps * kTiles;
    return weights > kSums ? weights : kSums;
  }
  /// And what `arrived` counts.
  static int smem_bytes(const SplitKPlan& plan) {
    return weights_bytes(plan) + (kCluster > 1 ? 512 * kOwnTiles * kCluster : 0);
  }
};

/// The copies of a tile's rows; a whole warp. Rows past the last one of w are left out.
__device__ inline void load_tile(const TinyGemmParams& p, const SplitKPlan& plan, int tile, int n0,
                                 int k0, int row_bytes, uint4* weights, MBarrier* full) {
  const int lane = threadIdx.x % 32;
  const int first = kTileRows * tile;
  const int rows = max(min(kTileRows, min(plan.rows, p.N - n0) - first), 0);
  if (lane == 0) mbarrier_expect(full, static_cast<std::uint32_t>(rows * row_bytes));
  __syncwarp();
  if (lane < rows && row_bytes > 0)
    bulk_load(weights + (first + lane) * plan.pitch, p.w + (n0 + first + lane) * p.w_stride + k0,
              static_cast<std::uint32_t>(row_bytes), full);
}

/// @tparam kTwoHalves  M is above 8
template <class Traits, bool kTwoHalves>
__global__ __launch_bounds__(Traits::kThreads, 2) void tiny_gemm_split_k_kernel(
    const __grid_constant__ TinyGemmParams p, const __grid_constant__ SplitKPlan plan) {
  constexpr int kTiles = Traits::kTiles;
  constexpr int kChunks = Traits::kChunks;
  constexpr int kCluster = Traits::kCluster;
  extern __shared__ uint4 weights[];  // [row, pitch]
  __shared__ ByteBarrier arrived;
  __shared__ MBarrier full[kTiles];
  auto* const sums_of_warps = reinterpret_cast<float4*>(weights);  // [warp, tile, lane]
  auto* const received = reinterpret_cast<float4*>(                // [own tile, rank, lane]
      reinterpret_cast<char*>(weights) + Traits::weights_bytes(plan));
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int rank = blockIdx.x % kCluster;
  const int n0 = blockIdx.x / kCluster * plan.rows;
  const int k0 = rank * plan.chunks_per_cta * kChunk;
  const int k_end = min(p.K, k0 + plan.chunks_per_cta * kChunk);
  const int row_bytes = max(k_end - k0, 0) * static_cast<int>(sizeof(bf16));
  // Lanes whose sums belong to a row of x.
  const int live_lanes = kTwoHalves ? 32 : 4 * p.M;

  pdl_launch_dependents();
  if (warp == 0) {
    if (lane == 0) {
#pragma unroll
      for (MBarrier& barrier : full) mbarrier_init(&barrier, 1);
      if constexpr (kCluster > 1) {
        const int own_tiles = (kTiles - 1 - rank + kCluster) / kCluster;
        arm(&arrived, static_cast<std::uint32_t>(own_tiles * kCluster * live_lanes * 16));
      }
      publish_to_bulk_copies();
    }
    if constexpr (!Traits::kHasLoader) {
      __syncwarp();
#pragma unroll 1
      for (int tile = 0; tile < kTiles; ++tile)
        load_tile(p, plan, tile, n0, k0, row_bytes, weights, &full[tile]);
    }
  } else if (k_end < k0 + plan.chunks_per_cta * kChunk) {
    // Zeros past the end of K, where x is zero, too, so that no NaN comes of what stood there.
    const int first = row_bytes / 16;
    const int missing = 4 * plan.chunks_per_cta - first;
#pragma unroll 1
    for (int i = threadIdx.x - 32; i < plan.rows * missing; i += Traits::kThreads - 32)
      weights[i / missing * plan.pitch + first + i % missing] = {};
  }
  // Brings x into the L2, where a previous kernel has mostly left it. Once in the grid: many
  // requests for a line on its way would wait for each other.
  if (blockIdx.x < kCluster)
#pragma unroll 1
    for (int row = warp; row < p.M; row += Traits::kThreads / 32)
#pragma unroll 1
      for (int k = k0 + 64 * lane; k < k_end; k += 64 * 32) prefetch_l2(p.x + row * p.x_stride + k);
  __syncthreads();  // the barriers are made, the zeros written
  if constexpr (kCluster > 1) cluster_arrive_relaxed();
  if constexpr (Traits::kHasLoader)
    if (warp == kSplitKWarps)
#pragma unroll 1
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile >= Traits::kWindow) mbarrier_wait(&full[tile - Traits::kWindow], 0);
        load_tile(p, plan, tile, n0, k0, row_bytes, weights, &full[tile]);
      }
  if constexpr (kCluster > 1) cluster_wait();  // the barriers of all CTAs are armed

  pdl_wait();
  const int first = warp * plan.chunks_per_warp;
  const int last = warp < kSplitKWarps ? min(first + plan.chunks_per_warp, plan.chunks_per_cta) : 0;
  const bf16* const x_row = p.x + lane / 4 * p.x_stride;
  const bool has_above = lane / 4 < p.M;
  const bool has_below = lane / 4 + 8 < p.M;
  const uint4* const first_tile = weights + lane / 4 * plan.pitch + lane % 4;
  // The last of all rows stands for those past it, whose sums go nowhere.
  const uint4* const last_tile =
      weights + min(kTileRows * (kTiles - 1) + lane / 4, plan.rows - 1) * plan.pitch + lane % 4;
  TileSums<Traits::kChains> sums[kTiles];
#pragma unroll 1
  for (int begin = first; begin < last; begin += kChunks) {
    ChunkOfX x[kChunks] = {};
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int k = k0 + (begin + i) * kChunk + 8 * (lane % 4);
      const bool exists = begin + i < last && k < k_end;
      if (exists && has_above) x[i].above = *reinterpret_cast<const uint4*>(x_row + k);
      if (kTwoHalves && exists && has_below)
        x[i].below = *reinterpret_cast<const uint4*>(x_row + 8 * p.x_stride + k);
    }
#pragma unroll
    for (MBarrier& barrier : full) mbarrier_wait(&barrier, 0);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (begin + i < last) {
        const int at = 4 * (begin + i);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          multiply_chunk(
              sums[tile], i, x[i],
              tile + 1 < kTiles ? first_tile[kTileRows * tile * plan.pitch + at] : last_tile[at]);
      }
    }
  }

  __syncthreads();  // every warp has read its part of w
  if (warp < kSplitKWarps) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      sums_of_warps[(warp * kTiles + tile) * 32 + lane] = total(sums[tile]);
  }
  __syncthreads();  // the sums of all warps are there
  const int end = min(n0 + plan.rows, p.N);
  if (warp < kTiles && lane < live_lanes) {
    float4 sum = sums_of_warps[warp * 32 + lane];
#pragma unroll
    for (int w = 1; w < kSplitKWarps; ++w)
      sum = plus(sum, sums_of_warps[(w * kTiles + warp) * 32 + lane]);
    if constexpr (kCluster == 1)
      store_tile<kTwoHalves>(p, n0 + kTileRows * warp, end, lane, sum);
    else
      send(received + (warp / kCluster * kCluster + rank) * 32 + lane, &arrived, warp % kCluster,
           sum);
  }

  if constexpr (kCluster > 1) {
    const int tile = warp * kCluster + rank;
    if (warp < Traits::kOwnTiles && tile < kTiles && lane < live_lanes) {
      wait(&arrived);
      const float4* const of_ranks = received + warp * kCluster * 32 + lane;
      float4 sum = of_ranks[0];
#pragma unroll
      for (int r = 1; r < kCluster; ++r) sum = plus(sum, of_ranks[32 * r]);
      store_tile<kTwoHalves>(p, n0 + kTileRows * tile, end, lane, sum);
    }
  }
}

}  // namespace k3::cuda
