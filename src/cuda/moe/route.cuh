// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/moe_route.h"
#include "cuda/common/prefetch.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/moe/score.cuh"

/// 16 of 896 experts for one token, by four warps of a CTA.
///
/// A lower bound of the 16th largest key cuts 896 keys to about 22, which one warp then ranks by
/// counting. The bound is the 16th largest of 32 maxima, each over 28 keys: 16 keys at least reach
/// it.
///
/// | phase | warps | what |
/// |---|---|---|
/// | 1 | 0-3 | 7 experts a thread, 128 apart: keys and activations to shared memory, 32 maxima |
/// | barrier | all | keys, maxima |
/// | 2 | 0-3 | every warp finds the bound; each thread looks at 7 neighbouring experts, so that
/// each warp's list of candidates is in order of id | | barrier | 1-3 arrive and leave, 0 waits |
/// the lists | | 3 | 0 | candidates ranked, one a lane; weights |
///
/// More than 32 candidates (1 row in 600 of random ones) are ranked two a lane; more than 64, which
/// takes equal scores or large ones that sit together, are first cut to the 16 by a search over
/// their bits.
namespace k3::cuda::moe {

inline constexpr int kExperts = 896;
inline constexpr int kTopk = 16;
inline constexpr int kRouteThreads = 128;
inline constexpr int kRouteWarps = kRouteThreads / 32;
inline constexpr int kPerThread = kExperts / kRouteThreads;
inline constexpr int kWarpExperts = kExperts / kRouteWarps;
inline constexpr int kGroups = 32;  ///< of keys that share a maximum: one for each lane of a warp
inline constexpr int kMostRanked = 64;
inline constexpr int kRouteBarrier = 1;

struct alignas(16) RouteShared {
  std::uint32_t key[kExperts];
  float activation[kExperts];
  std::uint32_t group_max[kGroups];
  std::uint32_t ranked_key[kMostRanked];
  float winner[kTopk];                ///< activations in ascending order of id
  int num_candidates[kRouteWarps];    ///< of each warp
  std::uint16_t candidate[kExperts];  ///< ids, ascending; warp w's from w * kWarpExperts on
  std::uint32_t bound;                ///< where one warp finds it for all
};

/// Of the token's threads. A number that is not known when compiling would take all 16 barriers of
/// the CTA.
__device__ inline void route_barrier_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(kRouteBarrier), "n"(kRouteThreads) : "memory");
}
__device__ inline void route_barrier_arrive() {
  asm volatile("bar.arrive %0, %1;" ::"n"(kRouteBarrier), "n"(kRouteThreads) : "memory");
}

/// How many of the first kValues values, 16-byte aligned, are above x.
template <int kValues>
__device__ int count_above(const std::uint32_t* values, std::uint32_t x) {
  int count = 0;
#pragma unroll
  for (int i = 0; i < kValues / 4; ++i) {
    const uint4 v = reinterpret_cast<const uint4*>(values)[i];
    count += (v.x > x) + (v.y > x) + (v.z > x) + (v.w > x);
  }
  return count;
}

/// A line for each of the token's threads, of `bytes` <= 128 * (kRouteThreads - 1).
__device__ inline void prefetch_row(const void* row, unsigned bytes, unsigned thread) {
  if (thread * 128 < bytes + 127)
    prefetch_l2(static_cast<const std::byte*>(row) + min(thread * 128, bytes - 1));
}

/// Before the grid's predecessors are done: the token's logits, and the corrections once. Every CTA
/// asking for these would cost more than it gains.
template <class Score>
__device__ void prefetch_scores(const MoeRouting& p, std::int64_t token, int thread) {
  prefetch_row(static_cast<const Score*>(p.scores) + token * p.scores_stride,
               kExperts * sizeof(Score), static_cast<unsigned>(thread));
  if (blockIdx.x == 0)
    prefetch_row(p.bias, kExperts * sizeof(float), static_cast<unsigned>(thread));
}

/// Where a warp's list of candidates is too long to rank: leaves exactly the winners in the list.
__device__ inline void narrow_candidates(RouteShared& s, std::uint32_t bound, unsigned lane) {
  constexpr int kPerLane = kExperts / 32;  // neighbours
  std::uint32_t key[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane / 4; ++i) {
    const uint4 v = reinterpret_cast<const uint4*>(s.key + lane * kPerLane)[i];
    key[4 * i] = v.x;
    key[4 * i + 1] = v.y;
    key[4 * i + 2] = v.z;
    key[4 * i + 3] = v.w;
  }
  // The 16th largest key is in [low, high): at least 16 are >= low, fewer are >= high.
  std::uint32_t low = bound;
  std::uint32_t high = 0xFFFFFFFFU;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    int count = 0;
#pragma unroll
    for (const std::uint32_t k : key) count += k >= middle;
    count = __reduce_add_sync(warp::kAllLanes, count);
    (count >= kTopk ? low : high) = middle;
    if (count == kTopk) break;  // the winners are those from `low` on
  }
  int above = 0;
  int equal = 0;
#pragma unroll
  for (const std::uint32_t k : key) {
    above += k > low;
    equal += k == low;
  }
  const int quota = kTopk - __reduce_add_sync(warp::kAllLanes, above);  // of equal ones
  above = warp::inclusive_sum(above, lane) - above;
  equal = warp::inclusive_sum(equal, lane) - equal;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (key[i] > low || (key[i] == low && equal < quota))
      s.candidate[above + min(equal, quota)] = static_cast<std::uint16_t>(lane * kPerLane + i);
    above += key[i] > low;
    equal += key[i] == low;
  }
  __syncwarp();
  if (lane < kRouteWarps) s.num_candidates[lane] = lane == 0 ? kTopk : 0;
  __syncwarp();
}

/// The ranks of 32 * kPerLane keys that lie in s.ranked_key, key[c] of a lane at 32 c + lane; of
/// equal ones the earlier ranks first. One warp.
template <int kPerLane>
__device__ void rank_keys(const RouteShared& s, const std::uint32_t (&key)[kPerLane],
                          int (&rank)[kPerLane], unsigned lane) {
  constexpr int kKeys = 32 * kPerLane;
  int sum = 0;
#pragma unroll
  for (int c = 0; c < kPerLane; ++c) {
    rank[c] = 0;
#pragma unroll
    for (int d = 0; d < kPerLane; ++d)
      rank[c] += count_above<32>(s.ranked_key + 32 * d, d < c ? key[c] - 1 : key[c]);
    sum += rank[c];
  }
  // Equal keys of one c have one rank so far, and the sum lacks something. To match keys takes
  // longer than to rank them, so it is left to those who need it.
  if (__reduce_add_sync(warp::kAllLanes, sum) == kKeys * (kKeys - 1) / 2) return;
#pragma unroll
  for (int c = 0; c < kPerLane; ++c)
    rank[c] += __popc(__match_any_sync(warp::kAllLanes, key[c]) & ((1U << lane) - 1));
}

/// Ranks n candidates, kTopk at least and 32 * kPerLane at most, and writes the token's outputs.
/// One warp.
template <int kPerLane>
__device__ void write_winners(const MoeRouting& p, std::int64_t token, RouteShared& s, int n,
                              unsigned lane) {
  const int4 counts = *reinterpret_cast<const int4*>(s.num_candidates);
  int id[kPerLane];
  std::uint32_t key[kPerLane];
#pragma unroll
  for (int c = 0; c < kPerLane; ++c) {
    int at = 32 * c + static_cast<int>(lane);
    id[c] = 0;
    key[c] = static_cast<std::uint32_t>(32 * kPerLane - at);  // none: distinct, and below all keys
    if (at < n) {
      int list = 0;
      if (at >= counts.x) at -= counts.x, list = 1;
      if (list == 1 && at >= counts.y) at -= counts.y, list = 2;
      if (list == 2 && at >= counts.z) at -= counts.z, list = 3;
      id[c] = s.candidate[list * kWarpExperts + at];
      key[c] = s.key[id[c]];
    }
    s.ranked_key[32 * c + lane] = key[c];
  }
  __syncwarp();

  int rank[kPerLane];
  rank_keys(s, key, rank, lane);
  int place[kPerLane];  // in ascending order of id, as candidates are
  bool wins[kPerLane];
  int winners = 0;
#pragma unroll
  for (int c = 0; c < kPerLane; ++c) {
    wins[c] = rank[c] < kTopk;
    const unsigned ballot = __ballot_sync(warp::kAllLanes, wins[c]);
    place[c] = winners + __popc(ballot & ((1U << lane) - 1));
    winners += __popc(ballot);
  }

  float activation[kPerLane];
#pragma unroll
  for (int c = 0; c < kPerLane; ++c) {
    activation[c] = s.activation[id[c]];
    if (wins[c]) s.winner[place[c]] = activation[c];
  }
  float divisor = 1.0F;
  if (p.options.renormalize) {
    __syncwarp();
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kTopk / 4; ++i) {
      const float4 w = reinterpret_cast<const float4*>(s.winner)[i];
      sum = (((sum + w.x) + w.y) + w.z) + w.w;
    }
    if (sum > 0.0F) divisor = sum;
  }
#pragma unroll
  for (int c = 0; c < kPerLane; ++c) {
    if (!wins[c]) continue;
    const int slot = p.options.sorted ? rank[c] : place[c];
    const float weight = activation[c] / divisor * p.options.routed_scaling_factor;
    p.weights[token * p.weights_stride + slot] = weight;
    p.ids[token * p.ids_stride + slot] = id[c];
    if (p.packed != nullptr) p.packed[token * p.packed_stride + slot] = packed_topk(id[c], weight);
  }
}

/// A lower bound of the 16th largest key. One warp.
__device__ inline std::uint32_t find_bound(const RouteShared& s, unsigned lane) {
  const std::uint32_t group_max = s.group_max[lane];
  const bool is_high = count_above<kGroups>(s.group_max, group_max) < kTopk;
  return __reduce_min_sync(warp::kAllLanes, is_high ? group_max : 0xFFFFFFFFU);
}

/// Called by kRouteThreads threads, `thread` the index among them. All but the first warp return
/// early, and `s` may not be used for another token before the first warp has returned.
/// @tparam kBoundOnce  one warp finds the bound for all: a barrier more, and less work where other
///                     tokens wait for the SM
template <class Score, bool kBoundOnce = false>
__device__ void route_token(const MoeRouting& p, std::int64_t token, RouteShared& s, int thread) {
  const int warp = thread / 32;
  const unsigned lane = static_cast<unsigned>(thread) % 32;
  const Score* const scores = static_cast<const Score*>(p.scores) + token * p.scores_stride;

  float x[kPerThread];
  float bias[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    x[i] = load_score(scores + i * kRouteThreads + thread);
    bias[i] = p.bias[i * kRouteThreads + thread];
  }
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const float activation = router_sigmoid(x[i]);
    const std::uint32_t key = rank_key(activation, bias[i]);
    s.key[i * kRouteThreads + thread] = key;
    s.activation[i * kRouteThreads + thread] = activation;
    largest = max(largest, key);
  }
  largest = max(largest, __shfl_xor_sync(warp::kAllLanes, largest, 8));
  largest = max(largest, __shfl_xor_sync(warp::kAllLanes, largest, 16));
  if (lane < kGroups / kRouteWarps) s.group_max[warp * (kGroups / kRouteWarps) + lane] = largest;
  route_barrier_sync();

  std::uint32_t key[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) key[i] = s.key[thread * kPerThread + i];
  std::uint32_t bound = 0;
  if constexpr (kBoundOnce) {
    if (warp == 0) s.bound = find_bound(s, lane);
    route_barrier_sync();
    bound = s.bound;
  } else {
    bound = find_bound(s, lane);
  }

  int count = 0;
#pragma unroll
  for (const std::uint32_t k : key) count += k >= bound;
  const unsigned below = (1U << lane) - 1;
  int before = 0;
#pragma unroll
  for (int bit = 0; bit < 3; ++bit)
    before += __popc(__ballot_sync(warp::kAllLanes, count >> bit & 1) & below) << bit;
  std::uint16_t* candidate = s.candidate + warp * kWarpExperts + before;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
    if (key[i] >= bound) *candidate++ = static_cast<std::uint16_t>(thread * kPerThread + i);
  if (lane == 31) s.num_candidates[warp] = before + count;
  if (warp != 0) {
    route_barrier_arrive();
    return;
  }
  route_barrier_sync();

  const int4 counts = *reinterpret_cast<const int4*>(s.num_candidates);
  int n = counts.x + counts.y + counts.z + counts.w;
  if (n > kMostRanked) {
    narrow_candidates(s, bound, lane);
    n = kTopk;
  }
  if (n <= 32)
    write_winners<1>(p, token, s, n, lane);
  else
    write_winners<2>(p, token, s, n, lane);
}

}  // namespace k3::cuda::moe
