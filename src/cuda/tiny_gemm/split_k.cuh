// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/tiny_gemm/tile.cuh"

/// The variant for long rows. The CTAs of a cluster make the same kTiles * 8 columns, each from its
/// own part of k; the warps of a CTA divide that part once more. All of w is on its way before
/// anything waits, and that before pdl_wait.
///
///   w         global -> shared, 16-byte asynchronous copies in fragment order: a lane reads what
///   it
///             copied itself, so they need no barrier and no bank conflicts arise
///   x         global -> registers, after pdl_wait: each element once a cluster
///   sums      of a warp: over the first chunk that it has read; of a CTA: in the order of its
///             warps, sent to the CTA that owns the tile; of the cluster: in the order of its CTAs
///   arrived   of each CTA, one phase: the sums of its own tiles from all CTAs. Armed before the
///             cluster barrier that every thread passes ahead of the first send
namespace k3::cuda {

struct SplitKPlan {
  int cluster_size;     ///< CTAs that share columns
  int chunks_per_cta;   ///< cluster_size of them hold K
  int chunks_per_warp;  ///< the last warp of a CTA may have fewer
  int num_warps;
};

/// Chunks whose x a warp holds at once.
inline constexpr int kChunksInFlight = 4;

/// Bytes of shared memory: w, and what `arrived` counts.
inline std::size_t split_k_smem_bytes(const SplitKPlan& plan, int tiles) {
  const int own_tiles = (tiles + plan.cluster_size - 1) / plan.cluster_size;
  return sizeof(uint4) * 32 *
         (static_cast<std::size_t>(plan.chunks_per_cta) * tiles + own_tiles * plan.cluster_size);
}

template <int kTiles, bool kTwoHalves>
__global__ __launch_bounds__(256) void tiny_gemm_split_k_kernel(
    const __grid_constant__ TinyGemmParams p, const __grid_constant__ SplitKPlan plan) {
  extern __shared__ uint4 shared[];
  __shared__ ByteBarrier arrived;
  uint4* const weights = shared;  // [chunk, tile, lane]
  float4* const received =        // [own tile, rank, lane]
      reinterpret_cast<float4*>(shared + 32 * kTiles * plan.chunks_per_cta);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int rank = blockIdx.x % plan.cluster_size;
  const int n0 = blockIdx.x / plan.cluster_size * (kTiles * 8);
  // Lanes whose sums belong to a row of x.
  const int live_lanes = 4 * min(p.M, 8);
  const int own_tiles = (kTiles - rank + plan.cluster_size - 1) / plan.cluster_size;

  pdl_launch_dependents();
  const int first = min(warp * plan.chunks_per_warp, plan.chunks_per_cta);
  const int last = min(first + plan.chunks_per_warp, plan.chunks_per_cta);
  for (int chunk = first; chunk < last; ++chunk) {
    const int k = (rank * plan.chunks_per_cta + chunk) * kChunk + 8 * (lane % 4);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int n = n0 + 8 * tile + lane / 4;
      const bool exists = k < p.K && n < p.N;
      copy_async_16(shared_address(weights + (chunk * kTiles + tile) * 32 + lane),
                    exists ? p.w + n * p.w_stride + k : p.w, exists);
    }
  }
  if (threadIdx.x == 0)
    arm(&arrived, static_cast<std::uint32_t>(own_tiles * plan.cluster_size * live_lanes *
                                             static_cast<int>(sizeof(float4))));
  // The barrier's arming goes before what this thread says to the cluster.
  __syncwarp();
  cluster_arrive_relaxed();

  pdl_wait();
  FragmentC sums[kTiles][2];
  for (int begin = first; begin < last; begin += kChunksInFlight) {
    ChunkOfX x[kChunksInFlight];
#pragma unroll
    for (int i = 0; i < kChunksInFlight; ++i) {
      // Past this warp's chunks, k = K gives zeros.
      const int chunk = begin + i < last ? rank * plan.chunks_per_cta + begin + i : p.K;
      x[i] = load_x<kTwoHalves>(p, chunk, lane);
    }
    if (begin == first) wait_for_async_copies();
#pragma unroll
    for (int i = 0; i < kChunksInFlight; ++i) {
      if (begin + i >= last) break;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        multiply_chunk(sums[tile], x[i], weights[((begin + i) * kTiles + tile) * 32 + lane]);
    }
  }
  if (first < last) {
    // A lane overwrites what only it has read.
    float4* const own = reinterpret_cast<float4*>(weights + first * kTiles * 32);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) own[tile * 32 + lane] = total(sums[tile]);
  }

  __syncthreads();  // the sums of all warps are in shared memory
  cluster_wait();   // the barriers of all CTAs are armed
  for (int i = threadIdx.x; i < kTiles * 32; i += blockDim.x) {
    const int tile = i / 32;
    if (i % 32 >= live_lanes) continue;
    const auto* const of_warps = reinterpret_cast<const float4*>(weights) + i;
    float4 sum = of_warps[0];
    for (int chunk = plan.chunks_per_warp; chunk < plan.chunks_per_cta;
         chunk += plan.chunks_per_warp) {
      const float4 next = of_warps[chunk * kTiles * 32];
      sum = {sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w};
    }
    const int at = tile / plan.cluster_size * plan.cluster_size + rank;
    send(received + at * 32 + i % 32, &arrived, tile % plan.cluster_size, sum);
  }

  for (int i = threadIdx.x; i < own_tiles * 32; i += blockDim.x) {
    if (i % 32 >= live_lanes) continue;
    wait(&arrived);
    const float4* const of_ranks = received + i / 32 * plan.cluster_size * 32 + i % 32;
    float4 sum = of_ranks[0];
    for (int r = 1; r < plan.cluster_size; ++r) {
      const float4 next = of_ranks[r * 32];
      sum = {sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w};
    }
    const int tile = i / 32 * plan.cluster_size + rank;
    store_outputs(p, n0 + 8 * tile, i % 32, sum);
  }
}

}  // namespace k3::cuda
