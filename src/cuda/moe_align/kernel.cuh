// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/moe_align.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/warp.cuh"

/// Stable counting sorts of slots by expert. A warp walks its slots in order, 32 at a time, behind
/// those counted before; counts are sums of integers, so their order plays no role. Ids outside the
/// experts are left out.
///
/// Up to kAlignMostSlots slots: every CTA sorts all of them in shared memory and writes the runs of
/// its own experts. More: three kernels,
///
/// | kernel | grid | what |
/// |---|---|---|
/// | count | a CTA a chunk of slots | the chunk's slots of each expert; fills the outputs |
/// | sum | a CTA 32 experts | sums over the chunks before each |
/// | scatter | a CTA a chunk | slots to their places, blocks to their experts |
namespace k3::cuda {

inline constexpr int kAlignThreads = 256;       ///< of one token, count, scatter
inline constexpr int kAlignManyThreads = 1024;  ///< of the CTAs that sort alone, and of sum
inline constexpr int kAlignFewSlots = 128;      ///< of a warp, where CTAs sort alone
inline constexpr int kAlignMostSlots = 16384;
inline constexpr int kAlignMostExperts = 1024;  ///< of the CTAs that sort alone

/// The three kernels' split and workspace.
struct AlignPlan {
  int num_chunks;
  int chunk_slots;      ///< a multiple of 32 * warps of scatter
  std::int32_t* chunk;  ///< [num_chunks, num_experts]: counts, then sums of the chunks before
  std::int32_t* total;  ///< [num_experts]
};

__device__ inline bool is_live(const MoeAlignProblem& p, std::int32_t id) {
  return static_cast<unsigned>(id) < static_cast<unsigned>(p.num_experts);
}

/// As MoeAlignProblem::padded.
__device__ inline std::int32_t padded_run(const MoeAlignProblem& p, std::int32_t slots) {
  return static_cast<std::int32_t>((std::int64_t{slots} + p.block_size - 1) / p.block_size *
                                   p.block_size);
}

__device__ inline void fill(std::int32_t* array, std::int64_t begin, std::int64_t end,
                            std::int32_t value, std::int64_t thread, std::int64_t num_threads) {
  for (std::int64_t i = begin + thread; i < end; i += num_threads) array[i] = value;
}

/// One warp takes the slots [first, end) in order. `next[id]` goes up by one for each slot of the
/// expert, and visit(slot, id, what it was before) is called.
template <class Visit>
__device__ void walk(const MoeAlignProblem& p, std::int64_t first, std::int64_t end, int* next,
                     unsigned lane, const Visit& visit) {
  const std::int32_t* const ids = p.topk_ids.data;
  std::int32_t ahead = first + lane < end ? ids[first + lane] : -1;
  for (; first < end; first += 32) {
    const std::int64_t slot = first + lane;
    const std::int32_t id = is_live(p, ahead) ? ahead : -1;
    ahead = slot + 32 < end ? ids[slot + 32] : -1;
    const unsigned equal = __match_any_sync(warp::kAllLanes, id);
    const int rank = __popc(equal & ((1U << lane) - 1));
    const int at = id >= 0 ? next[id] : 0;
    if (id >= 0) visit(static_cast<std::int32_t>(slot), id, at + rank);
    __syncwarp();  // reads of `next` before its writes
    if (id >= 0 && rank == 0) next[id] = at + __popc(equal);
    __syncwarp();  // and the next ones after them
  }
}

/// The sum over threads before this one, in CTAs of whole warps, 1024 threads at most. `*total` is
/// the sum over all. `warp_total` may be used again after a barrier.
__device__ inline int sum_before(int x, int* warp_total, int* total) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const int through = warp::inclusive_sum(x, lane);
  if (lane == 31) warp_total[warp] = through;
  __syncthreads();  // all of `warp_total`
  const int of_warps = warp::inclusive_sum(lane < blockDim.x / 32 ? warp_total[lane] : 0, lane);
  const int of_earlier = __shfl_sync(warp::kAllLanes, of_warps, warp == 0 ? 0 : warp - 1);
  *total = __shfl_sync(warp::kAllLanes, of_warps, 31);
  return (warp == 0 ? 0 : of_earlier) + through - x;
}

static __global__ __launch_bounds__(kAlignThreads) void align_one_token_kernel(
    const __grid_constant__ MoeAlignProblem p) {
  __shared__ int live;
  const int thread = static_cast<int>(threadIdx.x);
  pdl_launch_dependents();
  if (thread == 0) live = 0;
  pdl_wait();
  fill(p.sorted_ids, 0, p.sorted_size, p.num_slots, thread, kAlignThreads);
  fill(p.expert_ids, 0, p.expert_size, -1, thread, kAlignThreads);
  __syncthreads();  // `live`, and the outputs before their slots
  const std::int32_t* const ids = p.topk_ids.data;
  for (int slot = thread; slot < p.num_slots; slot += kAlignThreads) {
    const std::int32_t id = ids[slot];
    if (!is_live(p, id)) continue;
    int rank = 0;
    for (int other = 0; other < p.num_slots; ++other) {
      const std::int32_t other_id = ids[other];
      rank += is_live(p, other_id) && (other_id < id || (other_id == id && other < slot));
    }
    p.sorted_ids[std::int64_t{rank} * p.block_size] = slot;
    p.expert_ids[rank] = id;
    atomicAdd(&live, 1);
  }
  __syncthreads();
  if (thread == 0) *p.num_post = live * p.block_size;
}

/// Shared memory of align_alone_kernel: counts of each warp, the experts' places with and without
/// padding, the slots in order.
__host__ __device__ constexpr std::size_t align_alone_smem(int num_experts) {
  constexpr std::size_t kWarps = kAlignManyThreads / 32;
  return (kWarps + 3) * static_cast<std::size_t>(num_experts) * sizeof(int) +
         kAlignMostSlots * sizeof(std::uint16_t);
}

static __global__ __launch_bounds__(kAlignManyThreads) void align_alone_kernel(
    const __grid_constant__ MoeAlignProblem p) {
  constexpr int kWarps = kAlignManyThreads / 32;
  extern __shared__ int shared[];
  __shared__ int warp_total[2][32];
  const int E = p.num_experts;
  int* const counts = shared;              // [kWarps, E], then places of each warp's next slots
  int* const total = counts + kWarps * E;  // [E]
  int* const begin = total + E;            // [E] of `sorted`
  int* const padded_begin = begin + E;     // [E] of sorted_ids
  auto* const sorted = reinterpret_cast<std::uint16_t*>(padded_begin + E);
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned lane = threadIdx.x % 32;
  const int warp = thread / 32;
  pdl_launch_dependents();
  // Few slots take few warps: their counts are added up afterwards.
  const int per_warp = max(kAlignFewSlots, (p.num_slots + 32 * kWarps - 1) / (32 * kWarps) * 32);
  const int walkers = (p.num_slots + per_warp - 1) / per_warp;
  for (int i = thread; i < walkers * E; i += kAlignManyThreads) counts[i] = 0;
  const int first = min(warp * per_warp, p.num_slots);
  const int end = min(first + per_warp, p.num_slots);
  __syncthreads();  // counts are 0
  pdl_wait();
  walk(p, first, end, counts + warp * E, lane, [](auto...) {});
  __syncthreads();  // all counts

  // kAlignMostExperts is the number of threads: each has one expert at most.
  int sum = 0;
  if (thread < E)
    for (int w = 0; w < walkers; ++w) sum += counts[w * E + thread];
  int num_live = 0;
  int num_post = 0;
  const int compact = sum_before(sum, warp_total[0], &num_live);
  const int padded = sum_before(padded_run(p, sum), warp_total[1], &num_post);
  if (thread < E) {
    total[thread] = sum;
    begin[thread] = compact;
    padded_begin[thread] = padded;
    int at = compact;
    for (int w = 0; w < walkers; ++w) {
      const int count = counts[w * E + thread];
      counts[w * E + thread] = at;
      at += count;
    }
  }
  __syncthreads();  // all places
  walk(p, first, end, counts + warp * E, lane, [&](std::int32_t slot, std::int32_t, int at) {
    sorted[at] = static_cast<std::uint16_t>(slot);
  });
  __syncthreads();  // all of `sorted`

  const int num_ctas = static_cast<int>(gridDim.x);
  for (int e = static_cast<int>(blockIdx.x) * kWarps + warp; e < E; e += num_ctas * kWarps) {
    const int slots = total[e];
    const int size = padded_run(p, slots);
    const int block = padded_begin[e] / p.block_size;
    for (int i = static_cast<int>(lane); i < size; i += 32)
      p.sorted_ids[padded_begin[e] + i] = i < slots ? sorted[begin[e] + i] : p.num_slots;
    for (int i = static_cast<int>(lane); i < size / p.block_size; i += 32)
      p.expert_ids[block + i] = e;
  }
  const std::int64_t grid_thread = std::int64_t{blockIdx.x} * kAlignManyThreads + thread;
  const std::int64_t grid_threads = std::int64_t{gridDim.x} * kAlignManyThreads;
  fill(p.sorted_ids, num_post, p.sorted_size, p.num_slots, grid_thread, grid_threads);
  fill(p.expert_ids, num_post / p.block_size, p.expert_size, -1, grid_thread, grid_threads);
  if (grid_thread == 0) *p.num_post = num_post;
}

static __global__ __launch_bounds__(kAlignThreads) void align_count_kernel(
    const __grid_constant__ MoeAlignProblem p, const AlignPlan plan) {
  extern __shared__ int shared[];
  int* const count = shared;  // [num_experts]
  const int thread = static_cast<int>(threadIdx.x);
  pdl_launch_dependents();
  for (int e = thread; e < p.num_experts; e += kAlignThreads) count[e] = 0;
  __syncthreads();  // counts are 0
  pdl_wait();
  const std::int64_t grid_thread = std::int64_t{blockIdx.x} * kAlignThreads + thread;
  const std::int64_t grid_threads = std::int64_t{gridDim.x} * kAlignThreads;
  fill(p.sorted_ids, 0, p.sorted_size, p.num_slots, grid_thread, grid_threads);
  fill(p.expert_ids, 0, p.expert_size, -1, grid_thread, grid_threads);
  const std::int64_t first = std::int64_t{blockIdx.x} * plan.chunk_slots;
  const std::int64_t end = min(first + plan.chunk_slots, std::int64_t{p.num_slots});
  for (std::int64_t slot = first + thread; slot < end; slot += kAlignThreads)
    if (const std::int32_t id = p.topk_ids.data[slot]; is_live(p, id)) atomicAdd(&count[id], 1);
  __syncthreads();  // all counts
  std::int32_t* const to = plan.chunk + std::int64_t{blockIdx.x} * p.num_experts;
  for (int e = thread; e < p.num_experts; e += kAlignThreads) to[e] = count[e];
}

/// An expert a lane, chunks over warps.
static __global__ __launch_bounds__(kAlignManyThreads) void align_sum_kernel(
    const __grid_constant__ MoeAlignProblem p, const AlignPlan plan) {
  constexpr int kWarps = kAlignManyThreads / 32;
  constexpr int kMostPerWarp = 16;
  __shared__ int of_warp[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int e = static_cast<int>(blockIdx.x) * 32 + lane;
  const int per_warp = (plan.num_chunks + kWarps - 1) / kWarps;
  std::int32_t* const counts = plan.chunk + std::int64_t{warp} * per_warp * p.num_experts + e;
  const int here = e < p.num_experts ? min(per_warp, plan.num_chunks - warp * per_warp) : 0;
  pdl_launch_dependents();
  pdl_wait();
  int before[kMostPerWarp];
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kMostPerWarp; ++i)
    before[i] = i < here ? counts[std::int64_t{i} * p.num_experts] : 0;
#pragma unroll
  for (int i = 0; i < kMostPerWarp; ++i) {
    const int count = before[i];
    before[i] = sum;
    sum += count;
  }
  of_warp[warp][lane] = sum;
  __syncthreads();  // all of `of_warp`
  int of_earlier = 0;
  int total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) of_earlier += of_warp[w][lane];
    total += of_warp[w][lane];
  }
#pragma unroll
  for (int i = 0; i < kMostPerWarp; ++i)
    if (i < here) counts[std::int64_t{i} * p.num_experts] = of_earlier + before[i];
  if (warp == 0 && e < p.num_experts) plan.total[e] = total;
}

/// Shared memory: the places of each warp's next slots, and of the experts.
static __global__ __launch_bounds__(kAlignThreads) void align_scatter_kernel(
    const __grid_constant__ MoeAlignProblem p, const AlignPlan plan) {
  extern __shared__ int shared[];
  __shared__ int warp_total[32];
  const int E = p.num_experts;
  const int num_threads = static_cast<int>(blockDim.x);
  const int num_warps = num_threads / 32;
  int* const next = shared;  // [num_warps, E]
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned lane = threadIdx.x % 32;
  const int warp = thread / 32;
  pdl_launch_dependents();
  for (int i = thread; i < num_warps * E; i += num_threads) next[i] = 0;
  __syncthreads();  // counts are 0
  pdl_wait();
  const std::int64_t chunk = std::int64_t{blockIdx.x} * plan.chunk_slots;
  const std::int64_t slots = p.num_slots;
  const std::int64_t chunk_end = min(chunk + plan.chunk_slots, slots);
  const int per_warp = plan.chunk_slots / num_warps;
  const std::int64_t first = min(chunk + std::int64_t{warp} * per_warp, chunk_end);
  const std::int64_t end = min(first + per_warp, chunk_end);
  walk(p, first, end, next + warp * E, lane, [](auto...) {});

  const std::int32_t* const of_chunks = plan.chunk + std::int64_t{blockIdx.x} * E;
  int begin = 0;
  for (int base = 0; base < E; base += num_threads) {
    const int e = base + thread;
    const int size = e < E ? padded_run(p, plan.total[e]) : 0;
    int total = 0;
    const int run = begin + sum_before(size, warp_total, &total);  // also: all counts
    begin += total;
    if (e < E) {
      int at = run + of_chunks[e];
      for (int w = 0; w < num_warps; ++w) {
        const int count = next[w * E + e];
        next[w * E + e] = at;
        at += count;
      }
      if (e % gridDim.x == blockIdx.x)
        for (int block = run / p.block_size; block < (run + size) / p.block_size; ++block)
          p.expert_ids[block] = e;
    }
    __syncthreads();  // all places, and `warp_total` before it is written again
  }
  if (blockIdx.x == 0 && thread == 0) *p.num_post = begin;
  walk(p, first, end, next + warp * E, lane,
       [&](std::int32_t slot, std::int32_t, int at) { p.sorted_ids[at] = slot; });
}

}  // namespace k3::cuda
