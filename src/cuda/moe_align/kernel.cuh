// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/moe_align.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/warp.cuh"

/// Stable counting sorts of slots by expert. Counts are sums of integers, so their order plays no
/// role; where an order of arrival decides a place, slots are put in order afterwards. Ids outside
/// the experts are left out.
///
/// Up to kAlignMostSlots slots: every CTA gathers all of them by expert in shared memory, in any
/// order, and writes the runs of its own experts, a warp each: a slot's place in its run is the
/// number of smaller ones. More: three kernels,
///
/// | kernel | grid | what |
/// |---|---|---|
/// | count | a CTA a chunk of slots | the chunk's slots of each expert; fills the outputs |
/// | sum | a CTA 32 experts | sums over the chunks before each |
/// | scatter | a CTA a chunk | slots in order to their places, blocks to their experts |
namespace k3::cuda {

inline constexpr int kAlignThreads = 256;       ///< of one token, count, scatter
inline constexpr int kAlignManyThreads = 1024;  ///< of the CTAs that see all slots, and of sum
inline constexpr int kAlignMostSlots = 4096;    ///< of the CTAs that see all slots
inline constexpr int kAlignMostExperts = kAlignManyThreads;  ///< of the same: one a thread

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

/// As MoeAlignProblem::padded. The sum of two non-negative ints fits 32 bits.
__device__ inline std::int32_t padded_run(const MoeAlignProblem& p, std::int32_t slots) {
  const auto block = static_cast<std::uint32_t>(p.block_size);
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(slots) + block - 1) / block * block);
}

__device__ inline void fill(std::int32_t* array, std::int64_t begin, std::int64_t end,
                            std::int32_t value, std::int64_t thread, std::int64_t num_threads) {
  for (std::int64_t i = begin + thread; i < end; i += num_threads) array[i] = value;
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

/// The slots of one run to their places, in ascending order, and what fills its last block. One
/// warp.
__device__ inline void write_run(const MoeAlignProblem& p, const std::uint16_t* slots, int count,
                                 std::int32_t* to, unsigned lane) {
  for (int i = static_cast<int>(lane); i < count; i += 32) {
    const int slot = slots[i];
    int smaller = 0;
    for (int other = 0; other < count; ++other) smaller += slots[other] < slot;
    to[smaller] = slot;
  }
  fill(to, count, padded_run(p, count), p.num_slots, lane, 32);
}

static __global__ __launch_bounds__(kAlignManyThreads) void align_one_launch_kernel(
    const __grid_constant__ MoeAlignProblem p) {
  constexpr int kPerThread = kAlignMostSlots / kAlignManyThreads;
  constexpr int kWarps = kAlignManyThreads / 32;
  __shared__ int count[kAlignMostExperts];
  __shared__ int begin[kAlignMostExperts];         // of `gathered`
  __shared__ int padded_begin[kAlignMostExperts];  // of sorted_ids
  __shared__ std::uint16_t gathered[kAlignMostSlots];
  __shared__ int warp_total[2][32];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const unsigned lane = threadIdx.x % 32;
  pdl_launch_dependents();
  count[thread] = 0;
  __syncthreads();  // counts are 0
  pdl_wait();
  std::int32_t id[kPerThread];
  int place[kPerThread];  // among the slots of the expert, by arrival
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int slot = i * kAlignManyThreads + thread;
    id[i] = slot < p.num_slots ? p.topk_ids.data[slot] : -1;
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
    if (is_live(p, id[i])) place[i] = atomicAdd(&count[id[i]], 1);
  __syncthreads();  // all counts

  int num_live = 0;
  int num_post = 0;
  begin[thread] = sum_before(count[thread], warp_total[0], &num_live);
  padded_begin[thread] = sum_before(padded_run(p, count[thread]), warp_total[1], &num_post);
  __syncthreads();  // all of `begin`
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
    if (is_live(p, id[i]))
      gathered[begin[id[i]] + place[i]] =
          static_cast<std::uint16_t>(i * kAlignManyThreads + thread);
  __syncthreads();  // all of `gathered`

  const int num_ctas = static_cast<int>(gridDim.x);
  for (int e = static_cast<int>(blockIdx.x) * kWarps + warp; e < p.num_experts;
       e += num_ctas * kWarps) {
    const int at = padded_begin[e];
    write_run(p, gathered + begin[e], count[e], p.sorted_ids + at, lane);
    fill(p.expert_ids, at / p.block_size, (at + padded_run(p, count[e])) / p.block_size, e, lane,
         32);
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

/// One warp takes the slots [first, end) in order, 32 at a time, to where `next` says for each
/// expert, which goes up by one for each slot.
__device__ inline void place_in_order(const MoeAlignProblem& p, std::int64_t first,
                                      std::int64_t end, int* next, unsigned lane) {
  for (; first < end; first += 32) {
    const std::int64_t slot = first + lane;
    std::int32_t id = slot < end ? p.topk_ids.data[slot] : -1;
    if (!is_live(p, id)) id = -1;
    const unsigned equal = __match_any_sync(warp::kAllLanes, id);
    const int rank = __popc(equal & ((1U << lane) - 1));
    const int at = id >= 0 ? next[id] : 0;
    if (id >= 0) p.sorted_ids[at + rank] = static_cast<std::int32_t>(slot);
    __syncwarp();  // reads of `next` before its writes
    if (id >= 0 && rank == 0) next[id] = at + __popc(equal);
    __syncwarp();  // and the next ones after them
  }
}

/// Shared memory: where each warp's next slot of each expert goes.
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
  for (std::int64_t slot = first + lane; slot < end; slot += 32)
    if (const std::int32_t id = p.topk_ids.data[slot]; is_live(p, id))
      atomicAdd(&next[warp * E + id], 1);

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
  place_in_order(p, first, end, next + warp * E, lane);
}

}  // namespace k3::cuda
