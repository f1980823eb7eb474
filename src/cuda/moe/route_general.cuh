// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/moe_route.h"
#include "cuda/common/pdl.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/moe/score.cuh"

/// k of any number of experts, one token a CTA: a radix select over the bits of the keys, eight at
/// a time, then one pass in order of id that takes what is above the threshold and, of what is
/// equal to it, the first. Counts are sums of integers, so their order plays no role.
namespace k3::cuda::moe {

inline constexpr int kGeneralThreads = 256;  ///< one for each bin

struct GeneralShared {
  int histogram[256];
  int warp_total[kGeneralThreads / 32];
  int bin;              ///< that holds the k-th largest key
  int in_bin;           ///< keys there
  int above;            ///< keys in higher bins
  int id[kMoeMaxTopk];  ///< the chosen, in ascending order
  std::uint32_t key[kMoeMaxTopk];
  float activation[kMoeMaxTopk];
};

struct BlockSum {
  int through;  ///< this thread and those before it
  int total;
};

/// `s.warp_total` may be used again after the next barrier.
__device__ inline BlockSum block_sum(int x, GeneralShared& s) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  BlockSum sum = {warp::inclusive_sum(x, lane), 0};
  if (lane == 31) s.warp_total[warp] = sum.through;
  __syncthreads();
#pragma unroll
  for (unsigned w = 0; w < kGeneralThreads / 32; ++w) {
    if (w < warp) sum.through += s.warp_total[w];
    sum.total += s.warp_total[w];
  }
  return sum;
}

/// The keys to choose: those above `prefix` in the bits of `mask`, and the first `quota` of those
/// equal to it.
struct Threshold {
  std::uint32_t prefix = 0;
  std::uint32_t mask = 0;
  int quota = 0;
};

template <class KeyOf>
__device__ Threshold find_threshold(int num_experts, int topk, const KeyOf& key_of,
                                    GeneralShared& s) {
  const int thread = static_cast<int>(threadIdx.x);
  Threshold t;
  t.quota = topk;
  for (int shift = 24; shift >= 0; shift -= 8) {
    s.histogram[thread] = 0;
    __syncthreads();
    for (int e = thread; e < num_experts; e += kGeneralThreads) {
      const std::uint32_t key = key_of(e);
      if ((key & t.mask) == t.prefix) atomicAdd(&s.histogram[key >> shift & 0xFF], 1);
    }
    __syncthreads();
    const int bin = 255 - thread;
    const int in_bin = s.histogram[bin];
    const int through = block_sum(in_bin, s).through;
    if (through >= t.quota && through - in_bin < t.quota) {
      s.bin = bin;
      s.in_bin = in_bin;
      s.above = through - in_bin;
    }
    __syncthreads();
    t.prefix |= static_cast<std::uint32_t>(s.bin) << shift;
    t.mask |= 0xFFU << shift;
    t.quota -= s.above;
    if (s.in_bin == t.quota) break;
  }
  return t;
}

/// Fills `s.id` and `s.key`.
template <class KeyOf>
__device__ void gather(int num_experts, const Threshold& t, const KeyOf& key_of, GeneralShared& s) {
  int above_before = 0;
  int equal_before = 0;
  for (int first = 0; first < num_experts; first += kGeneralThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    const std::uint32_t key = e < num_experts ? key_of(e) : 0;
    const int above = e < num_experts && (key & t.mask) > t.prefix;
    const int equal = e < num_experts && (key & t.mask) == t.prefix;
    const BlockSum sum = block_sum(above | equal << 16, s);
    const int above_here = above_before + (sum.through & 0xFFFF) - above;
    const int equal_here = equal_before + (sum.through >> 16) - equal;
    if (above || (equal && equal_here < t.quota)) {
      const int at = above_here + min(equal_here, t.quota);
      s.id[at] = e;
      s.key[at] = key;
    }
    above_before += sum.total & 0xFFFF;
    equal_before += sum.total >> 16;
    __syncthreads();  // before warp_total is written again, and after the last id
  }
}

template <class Score>
__device__ void write_chosen(const MoeRouting& p, std::int64_t token, const Score* scores,
                             GeneralShared& s) {
  const int i = static_cast<int>(threadIdx.x);
  const int k = p.options.topk;
  if (i < k) s.activation[i] = router_sigmoid(load_score(scores + s.id[i]));
  __syncthreads();
  if (i >= k) return;
  float divisor = 1.0F;
  if (p.options.renormalize) {
    float sum = 0.0F;
    for (int j = 0; j < k; ++j) sum += s.activation[j];
    if (sum > 0.0F) divisor = sum;
  }
  int slot = i;
  if (p.options.sorted) {
    slot = 0;
    for (int j = 0; j < k; ++j) slot += s.key[j] > s.key[i] || (s.key[j] == s.key[i] && j < i);
  }
  const float weight = s.activation[i] / divisor * p.options.routed_scaling_factor;
  p.weights[token * p.weights_stride + slot] = weight;
  p.ids[token * p.ids_stride + slot] = s.id[i];
  if (p.packed != nullptr) p.packed[token * p.packed_stride + slot] = packed_topk(s.id[i], weight);
}

/// Token first_token + blockIdx.x. kKeysCached: dynamic shared memory holds a key for each expert,
/// else they are made again in every pass.
template <class Score, bool kKeysCached>
__global__ __launch_bounds__(kGeneralThreads) void route_general_kernel(
    const __grid_constant__ MoeRouting p, std::int64_t first_token) {
  extern __shared__ std::uint32_t keys[];
  __shared__ GeneralShared s;
  pdl_launch_dependents();
  const std::int64_t token = first_token + blockIdx.x;
  const Score* const scores = static_cast<const Score*>(p.scores) + token * p.scores_stride;
  const auto make_key = [&](int e) {
    return rank_key(router_sigmoid(load_score(scores + e)), p.bias[e]);
  };
  const auto key_of = [&](int e) {
    if constexpr (kKeysCached)
      return keys[e];
    else
      return make_key(e);
  };
  pdl_wait();
  if constexpr (kKeysCached)
    for (int e = static_cast<int>(threadIdx.x); e < p.num_experts; e += kGeneralThreads)
      keys[e] = make_key(e);
  const Threshold threshold = find_threshold(p.num_experts, p.options.topk, key_of, s);
  gather(p.num_experts, threshold, key_of, s);
  write_chosen(p, token, scores, s);
}

}  // namespace k3::cuda::moe
