// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/moe_align.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/warp.cuh"

/// One token: each slot counts the slots before it. Many: a stable counting sort in three kernels,
///
/// | kernel | grid | what |
/// |---|---|---|
/// | count | a CTA a chunk of slots | slots of the chunk for each expert; fills the outputs' rest |
/// | sum | one CTA | a warp an expert: sums over chunks before each; then the experts' places |
/// | scatter | a warp a chunk | slots in order, 32 at a time, behind those counted before |
///
/// Integer sums alone, so their order plays no role; ids outside the experts are left out.
namespace k3::cuda {

inline constexpr int kAlignThreads = 256;
inline constexpr int kAlignSumThreads = 1024;

/// The counting sort's workspace and split.
struct AlignPlan {
  int num_chunks;
  int chunk_slots;      ///< a multiple of 32
  std::int32_t* chunk;  ///< [num_experts, num_chunks]: counts, then sums of the chunks before
  std::int32_t* begin;  ///< [num_experts + 1]: where each expert's run begins in sorted_ids
};

__device__ inline bool is_live(const MoeAlignProblem& p, std::int32_t id) {
  return static_cast<unsigned>(id) < static_cast<unsigned>(p.num_experts);
}

/// As MoeAlignProblem::padded.
__device__ inline std::int32_t padded_run(const MoeAlignProblem& p, std::int32_t slots) {
  return static_cast<std::int32_t>((std::int64_t{slots} + p.block_size - 1) / p.block_size *
                                   p.block_size);
}

/// Everything that no slot and no block will take, and more.
__device__ inline void fill_rest(const MoeAlignProblem& p, std::int64_t thread,
                                 std::int64_t num_threads) {
  for (std::int64_t i = thread; i < p.sorted_size; i += num_threads) p.sorted_ids[i] = p.num_slots;
  for (std::int64_t i = thread; i < p.expert_size; i += num_threads) p.expert_ids[i] = -1;
}

static __global__ __launch_bounds__(kAlignThreads) void align_one_token_kernel(
    const __grid_constant__ MoeAlignProblem p) {
  __shared__ int live;
  const int thread = static_cast<int>(threadIdx.x);
  pdl_launch_dependents();
  if (thread == 0) live = 0;
  pdl_wait();
  fill_rest(p, thread, kAlignThreads);
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

static __global__ __launch_bounds__(kAlignThreads) void align_count_kernel(
    const __grid_constant__ MoeAlignProblem p, const AlignPlan plan) {
  extern __shared__ int count[];  // [num_experts]
  const int thread = static_cast<int>(threadIdx.x);
  pdl_launch_dependents();
  for (int e = thread; e < p.num_experts; e += kAlignThreads) count[e] = 0;
  pdl_wait();
  fill_rest(p, std::int64_t{blockIdx.x} * kAlignThreads + thread,
            std::int64_t{gridDim.x} * kAlignThreads);
  __syncthreads();  // counts are 0
  const std::int64_t first = std::int64_t{blockIdx.x} * plan.chunk_slots;
  const std::int64_t end = min(first + plan.chunk_slots, std::int64_t{p.num_slots});
  for (std::int64_t slot = first + thread; slot < end; slot += kAlignThreads)
    if (const std::int32_t id = p.topk_ids.data[slot]; is_live(p, id)) atomicAdd(&count[id], 1);
  __syncthreads();
  for (int e = thread; e < p.num_experts; e += kAlignThreads)
    plan.chunk[std::int64_t{e} * plan.num_chunks + blockIdx.x] = count[e];
}

static __global__ __launch_bounds__(kAlignSumThreads) void align_sum_kernel(
    const __grid_constant__ MoeAlignProblem p, const AlignPlan plan) {
  constexpr int kWarps = kAlignSumThreads / 32;
  extern __shared__ int padded[];  // [num_experts]
  __shared__ int warp_total[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned lane = threadIdx.x % 32;
  const int warp = thread / 32;
  pdl_launch_dependents();
  pdl_wait();
  for (int e = warp; e < p.num_experts; e += kWarps) {
    std::int32_t* const counts = plan.chunk + std::int64_t{e} * plan.num_chunks;
    int total = 0;
    for (int first = 0; first < plan.num_chunks; first += 32) {
      const int c = first + static_cast<int>(lane);
      const int count = c < plan.num_chunks ? counts[c] : 0;
      const int through = warp::inclusive_sum(count, lane);
      if (c < plan.num_chunks) counts[c] = total + through - count;
      total += __shfl_sync(warp::kAllLanes, through, 31);
    }
    if (lane == 0) padded[e] = padded_run(p, total);
  }
  __syncthreads();  // all of `padded`

  int before = 0;
  for (int first = 0; first < p.num_experts; first += kAlignSumThreads) {
    const int e = first + thread;
    const int size = e < p.num_experts ? padded[e] : 0;
    const int through = warp::inclusive_sum(size, lane);
    if (lane == 31) warp_total[warp] = through;
    __syncthreads();  // all of `warp_total`
    const int of_warps = warp::inclusive_sum(warp_total[lane], lane);
    const int of_earlier = warp == 0 ? 0 : __shfl_sync(warp::kAllLanes, of_warps, warp - 1);
    if (e < p.num_experts) plan.begin[e] = before + of_earlier + through - size;
    before += __shfl_sync(warp::kAllLanes, of_warps, 31);
    __syncthreads();  // `warp_total` before it is written again
  }
  if (thread == 0) {
    plan.begin[p.num_experts] = before;
    *p.num_post = before;
  }
}

/// The last expert whose run begins at or before `at`, which lies in some run: an empty run begins
/// where the next one does.
__device__ inline int expert_at(const std::int32_t* begin, int num_experts, int at) {
  int low = 0;
  int high = num_experts;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (begin[middle] <= at ? low : high) = middle;
  }
  return low;
}

static __global__ __launch_bounds__(32) void align_scatter_kernel(
    const __grid_constant__ MoeAlignProblem p, const AlignPlan plan) {
  extern __shared__ int next[];  // [num_experts]: where the chunk's next slot of an expert goes
  const unsigned lane = threadIdx.x;
  pdl_launch_dependents();
  pdl_wait();
  const int num_blocks = plan.begin[p.num_experts] / p.block_size;
  const int step = static_cast<int>(gridDim.x) * 32;
  for (int block = static_cast<int>(blockIdx.x * 32 + lane); block < num_blocks; block += step)
    p.expert_ids[block] = expert_at(plan.begin, p.num_experts, block * p.block_size);

  for (int e = static_cast<int>(lane); e < p.num_experts; e += 32)
    next[e] = plan.begin[e] + plan.chunk[std::int64_t{e} * plan.num_chunks + blockIdx.x];
  __syncwarp();
  const std::int64_t chunk = std::int64_t{blockIdx.x} * plan.chunk_slots;
  const std::int64_t end = min(chunk + plan.chunk_slots, std::int64_t{p.num_slots});
  for (std::int64_t first = chunk; first < end; first += 32) {
    const std::int64_t slot = first + lane;
    std::int32_t id = slot < end ? p.topk_ids.data[slot] : -1;
    if (!is_live(p, id)) id = -1;
    const unsigned equal = __match_any_sync(warp::kAllLanes, id);
    const int rank = __popc(equal & ((1U << lane) - 1));
    const int at = id >= 0 ? next[id] : 0;
    if (id >= 0) p.sorted_ids[at + rank] = static_cast<std::int32_t>(slot);
    __syncwarp();  // reads of `next` before its writes
    if (id >= 0 && rank == 0) next[id] = at + __popc(equal);
    __syncwarp();
  }
}

}  // namespace k3::cuda
