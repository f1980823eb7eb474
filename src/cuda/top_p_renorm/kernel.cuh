// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/cluster.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/warp.cuh"

/// A row is the work of one CTA, or of the CTAs of a cluster, each with every kRanks-th stretch of
/// it. The pivot is found by its bits, ten at a time from the top: each pass adds up the masses of
/// the values that agree with the pivot so far, by their next ten bits, in shared memory; then one
/// warp of each CTA takes the first digit with which enough is reached, first among 32 groups of
/// digits, then in the group. Masses are integers, so their atomic additions give the same sums in
/// any order.
///
///   held      the values, in registers, from the first pass to the end
///   sums      [pass][low words, high words][digit] of each CTA
///   groups    [pass][group] of each CTA: the sums of 32 digits
///   barriers  of the CTA: zeros, then sums, then the digit are there. Of the cluster: groups and
///             sums of all CTAs are there; all have been read, before any CTA leaves
namespace k3::cuda {

inline constexpr int kTopPDigitBits = 10;
inline constexpr int kTopPDigits = 1 << kTopPDigitBits;
inline constexpr int kTopPGroups = kTopPDigits / 32;
inline constexpr int kTopPPasses = 3;

struct TopPRenormParams {
  const float* probs;   ///< [B, V]
  const float* top_ps;  ///< [B] or null: top_p
  float* out;           ///< [B, V]; may be probs
  std::int64_t probs_stride;
  std::int64_t top_ps_stride;
  std::int64_t out_stride;
  int V;
  int mass_bits;
  float top_p;
};

template <int kVec>
struct alignas(sizeof(float) * kVec) TopPVector {
  float x[kVec];
};

/// What counts of a value: NaN and negative values as 0, values above 1 as 1.
__device__ inline float probability(float x) { return fminf(fmaxf(x, 0.0F), 1.0F); }

template <int kVec>
__device__ TopPVector<kVec> probabilities(TopPVector<kVec> vector) {
#pragma unroll
  for (float& x : vector.x) x = probability(x);
  return vector;
}

struct TopPShared {
  std::uint32_t sums[kTopPPasses][2][kTopPDigits];
  std::uint64_t groups[kTopPPasses][kTopPGroups];
  std::uint64_t total;  ///< mass of the row
  std::uint64_t below;  ///< mass of the values that are smaller than the pivot in its bits so far
  std::uint32_t digit;  ///< the newest ones of those
};

/// A mass in two words, whose additions carry.
__device__ inline void add_mass(std::uint32_t* low, std::uint32_t* high, std::uint64_t mass) {
  const auto low_mass = static_cast<std::uint32_t>(mass);
  const auto high_mass = static_cast<std::uint32_t>(mass >> 32);
  const std::uint32_t before = atomicAdd(low, low_mass);
  const std::uint32_t carry = before + low_mass < before ? 1U : 0U;
  if (high_mass + carry != 0) atomicAdd(high, high_mass + carry);
}

/// Of 32 masses, one a lane: the first lane with which `below` and all up to it reach `wanted`.
/// Adds those ahead of it to `below`, and gives the sum of all.
__device__ inline int first_to_reach(std::uint64_t mass, std::uint64_t wanted, std::uint64_t& below,
                                     std::uint64_t& all) {
  const std::uint64_t end = warp::inclusive_sum(mass, threadIdx.x % 32);
  all = __shfl_sync(warp::kAllLanes, end, 31);
  if (wanted > below + all) wanted = below + all;
  const int found = __ffs(__ballot_sync(warp::kAllLanes, below + end >= wanted)) - 1;
  below += __shfl_sync(warp::kAllLanes, end - mass, found);
  return found;
}

/// A whole warp; the sums of all CTAs are there.
template <int kRanks>
__device__ void find_digit(TopPShared& shared, int pass, std::uint64_t wanted) {
  const int lane = threadIdx.x % 32;
  std::uint64_t below = pass == 0 ? 0 : shared.below;
  std::uint64_t all;
  std::uint64_t mass = 0;
#pragma unroll
  for (int r = 0; r < kRanks; ++r)
    mass += kRanks > 1 ? load_remote(&shared.groups[pass][lane], r) : shared.groups[pass][lane];
  const int group = first_to_reach(mass, wanted, below, all);
  if (pass == 0 && lane == 0) shared.total = all;

  const std::uint32_t* const low = &shared.sums[pass][0][32 * group + lane];
  const std::uint32_t* const high = &shared.sums[pass][1][32 * group + lane];
  mass = 0;
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    const std::uint32_t low_mass = kRanks > 1 ? load_remote(low, r) : *low;
    const std::uint32_t high_mass = kRanks > 1 ? load_remote(high, r) : *high;
    mass += low_mass + (std::uint64_t{high_mass} << 32);
  }
  const int digit = 32 * group + first_to_reach(mass, wanted, below, all);
  if (lane == 0) {
    shared.below = below;
    shared.digit = static_cast<std::uint32_t>(digit);
  }
}

/// @tparam kVec      values an access: 4 or 1
/// @tparam kThreads  of a CTA
/// @tparam kRanks    CTAs of a row: 1, or the size of the cluster
/// @tparam kHeld     vectors a thread holds; 0: reads the row again in each pass
template <int kVec, int kThreads, int kRanks, int kHeld>
__global__ __launch_bounds__(kThreads) void top_p_renorm_kernel(
    const __grid_constant__ TopPRenormParams p) {
  using Vector = TopPVector<kVec>;
  constexpr int kWarps = kThreads / 32;
  constexpr int kStep = kRanks * kThreads;
  __shared__ TopPShared shared;
  const int rank = kRanks > 1 ? static_cast<int>(blockIdx.x % kRanks) : 0;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const std::int64_t row = blockIdx.x / kRanks;
  const auto* const from = reinterpret_cast<const Vector*>(p.probs + row * p.probs_stride);
  auto* const to = reinterpret_cast<Vector*>(p.out + row * p.out_stride);
  const int num_vectors = p.V / kVec;
  const int first = rank * kThreads + static_cast<int>(threadIdx.x);
  pdl_launch_dependents();
  for (int i = threadIdx.x; i < kTopPPasses * 2 * kTopPDigits; i += kThreads)
    shared.sums[0][0][i] = 0;
  __syncthreads();

  pdl_wait();
  Vector held[kHeld > 0 ? kHeld : 1];
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (first + h * kStep < num_vectors) held[h] = from[first + h * kStep];
  // Calls f(index, values) for each of this thread's vectors.
  const auto for_vectors = [&](const auto& f) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int h = 0; h < kHeld; ++h)
        if (first + h * kStep < num_vectors) f(first + h * kStep, probabilities(held[h]));
    } else {
      for (std::int64_t i = first; i < num_vectors; i += kStep) f(i, probabilities(from[i]));
    }
  };

  float top_p = p.top_p;
  if (p.top_ps != nullptr) top_p = p.top_ps[row * p.top_ps_stride];
  if (isnan(top_p)) top_p = 1.0F;
  const double unit = static_cast<double>(std::uint64_t{1} << p.mass_bits);
  const auto scale = static_cast<float>(unit);
  const auto wanted =
      static_cast<std::uint64_t>(ceil((1.0 - static_cast<double>(probability(top_p))) * unit));
  std::uint32_t pivot = 0;  // its bits so far
#pragma unroll 1
  for (int pass = 0; pass < kTopPPasses; ++pass) {
    const int shift = kTopPDigitBits * (kTopPPasses - 1 - pass);
    for_vectors([&](std::int64_t, const Vector& vector) {
#pragma unroll
      for (const float x : vector.x) {
        const std::uint32_t key = __float_as_uint(x);
        if (key >> (shift + kTopPDigitBits) != pivot) continue;
        const std::uint32_t digit = key >> shift & (kTopPDigits - 1);
        add_mass(&shared.sums[pass][0][digit], &shared.sums[pass][1][digit],
                 __float2ull_rz(x * scale));
      }
    });
    __syncthreads();  // this CTA's sums are there
    for (int group = warp; group < kTopPGroups; group += kWarps) {
      const std::uint64_t mass =
          warp::sum(shared.sums[pass][0][32 * group + lane] +
                    (std::uint64_t{shared.sums[pass][1][32 * group + lane]} << 32));
      if (lane == 0) shared.groups[pass][group] = mass;
    }
    if constexpr (kRanks > 1)
      cluster_sync();  // those of all CTAs are there
    else
      __syncthreads();
    // After the first pass the row has at least what is still wanted.
    if (warp == 0)
      find_digit<kRanks>(shared, pass, pass == 0 || wanted < shared.total ? wanted : shared.total);
    __syncthreads();  // the digit is there
    pivot = pivot << kTopPDigitBits | shared.digit;
  }

  const std::uint64_t kept = shared.total - shared.below;
  const float sum = __ull2float_rn(kept) / scale;
  for_vectors([&](std::int64_t i, Vector vector) {
#pragma unroll
    for (float& x : vector.x)
      x = __float_as_uint(x) >= pivot && kept > 0 ? __fdiv_rn(x, sum) : 0.0F;
    to[i] = vector;
  });
  if constexpr (kRanks > 1) cluster_sync();  // others have read this CTA's sums
}

}  // namespace k3::cuda
