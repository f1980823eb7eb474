// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/cluster.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/warp.cuh"

/// A row is the work of one CTA, or of the CTAs of a cluster, each with every kRanks-th stretch of
/// it. The pivot is found by its bits, ten at a time from the top: each pass adds up the masses of
/// the values that agree with the pivot so far, by their next ten bits, in shared memory, and takes
/// the first digit with which enough is reached. Masses are integers, so their atomic additions
/// give the same sums in any order.
///
///   sums      [pass][low word, high word][digit] of each CTA, zeroed before the first pass
///   barriers  of the cluster: after the zeroing; after each pass, ahead of reading the others'
///             sums; before the end, as others may still read. Every CTA finds the digit by itself
namespace k3::cuda {

inline constexpr int kTopPDigitBits = 10;
inline constexpr int kTopPDigits = 1 << kTopPDigitBits;
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

/// What counts of a value: NaN and negative values as 0, values above 1 as 1.
__device__ inline float probability(float x) { return fminf(fmaxf(x, 0.0F), 1.0F); }

/// A mass in two words, whose additions carry.
__device__ inline void add_mass(std::uint32_t* low, std::uint32_t* high, std::uint64_t mass) {
  const auto low_mass = static_cast<std::uint32_t>(mass);
  const auto high_mass = static_cast<std::uint32_t>(mass >> 32);
  const std::uint32_t before = atomicAdd(low, low_mass);
  const std::uint32_t carry = before + low_mass < before ? 1U : 0U;
  if (high_mass + carry != 0) atomicAdd(high, high_mass + carry);
}

/// The sum over the CTA's threads up to this one, and over all in `total`. Two barriers.
template <int kThreads>
__device__ std::uint64_t inclusive_sum(std::uint64_t x, std::uint64_t (&of_warps)[32],
                                       std::uint64_t* total) {
  constexpr int kWarps = kThreads / 32;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint64_t other = __shfl_up_sync(warp::kAllLanes, x, distance);
    if (lane >= distance) x += other;
  }
  if (lane == 31) of_warps[warp] = x;
  __syncthreads();
  std::uint64_t before = 0;
  std::uint64_t all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) before = all;
    all += of_warps[w];
  }
  __syncthreads();
  *total = all;
  return before + x;
}

/// @tparam kVec      values an access: 4 or 1
/// @tparam kThreads  of a CTA
/// @tparam kRanks    CTAs of a row: 1, or the size of the cluster
template <int kVec, int kThreads, int kRanks>
__global__ __launch_bounds__(kThreads) void top_p_renorm_kernel(
    const __grid_constant__ TopPRenormParams p) {
  __shared__ std::uint32_t sums[kTopPPasses][2][kTopPDigits];
  __shared__ std::uint64_t of_warps[32];
  __shared__ std::uint64_t below_digit;
  __shared__ std::uint32_t found_digit;
  constexpr int kDigitsPerThread = kTopPDigits / kThreads;
  struct alignas(sizeof(float) * kVec) Vector {
    float x[kVec];
  };
  const int rank = kRanks > 1 ? static_cast<int>(blockIdx.x % kRanks) : 0;
  const std::int64_t row = blockIdx.x / kRanks;
  const auto* const from = reinterpret_cast<const Vector*>(p.probs + row * p.probs_stride);
  auto* const to = reinterpret_cast<Vector*>(p.out + row * p.out_stride);
  const int num_vectors = p.V / kVec;
  const int first = rank * kThreads + static_cast<int>(threadIdx.x);
  const auto sync = [] {
    if constexpr (kRanks > 1)
      cluster_sync();
    else
      __syncthreads();
  };

  pdl_launch_dependents();
  for (int i = threadIdx.x; i < kTopPPasses * 2 * kTopPDigits; i += kThreads) sums[0][0][i] = 0;
  __syncthreads();

  pdl_wait();
  float top_p = p.top_p;
  if (p.top_ps != nullptr) top_p = p.top_ps[row * p.top_ps_stride];
  if (isnan(top_p)) top_p = 1.0F;
  const double unit = static_cast<double>(std::uint64_t{1} << p.mass_bits);
  const auto scale = static_cast<float>(unit);
  auto wanted =
      static_cast<std::uint64_t>(ceil((1.0 - static_cast<double>(probability(top_p))) * unit));
  std::uint32_t pivot = 0;  // its bits so far
  std::uint64_t below = 0;  // mass of the values that are smaller in those
  std::uint64_t total = 0;
  for (int pass = 0; pass < kTopPPasses; ++pass) {
    const int shift = kTopPDigitBits * (kTopPPasses - 1 - pass);
    for (std::int64_t i = first; i < num_vectors; i += kRanks * kThreads) {
      const Vector vector = from[i];
#pragma unroll
      for (int c = 0; c < kVec; ++c) {
        const float x = probability(vector.x[c]);
        const std::uint32_t key = __float_as_uint(x);
        if (key >> (shift + kTopPDigitBits) != pivot) continue;
        const std::uint32_t digit = key >> shift & (kTopPDigits - 1);
        add_mass(&sums[pass][0][digit], &sums[pass][1][digit], __float2ull_rz(x * scale));
      }
    }
    sync();  // the sums of all CTAs are there

    std::uint64_t masses[kDigitsPerThread] = {};
    std::uint64_t mass = 0;
#pragma unroll
    for (int d = 0; d < kDigitsPerThread; ++d) {
      const int digit = kDigitsPerThread * static_cast<int>(threadIdx.x) + d;
      for (int r = 0; r < kRanks; ++r) {
        const std::uint32_t* const low = &sums[pass][0][digit];
        const std::uint32_t* const high = &sums[pass][1][digit];
        if constexpr (kRanks > 1)
          masses[d] += load_remote(low, r) + (std::uint64_t{load_remote(high, r)} << 32);
        else
          masses[d] += *low + (std::uint64_t{*high} << 32);
      }
      mass += masses[d];
    }
    std::uint64_t all;
    const std::uint64_t end = below + inclusive_sum<kThreads>(mass, of_warps, &all);
    if (pass == 0) {
      total = all;
      // The largest value that has a mass is where all of it is reached.
      wanted = wanted < total ? wanted : total;
    }
    std::uint64_t begin = end - mass;
    if (threadIdx.x == 0 && wanted <= begin) {  // nothing is wanted: all stay
      found_digit = 0;
      below_digit = begin;
    }
    if (begin < wanted && wanted <= end) {
      int d = 0;
      while (begin + masses[d] < wanted) begin += masses[d++];
      found_digit = kDigitsPerThread * threadIdx.x + d;
      below_digit = begin;
    }
    __syncthreads();
    pivot = pivot << kTopPDigitBits | found_digit;
    below = below_digit;
  }

  const std::uint64_t kept = total - below;
  const float sum = __ull2float_rn(kept) / scale;
  for (std::int64_t i = first; i < num_vectors; i += kRanks * kThreads) {
    const Vector vector = from[i];
    Vector share;
#pragma unroll
    for (int c = 0; c < kVec; ++c) {
      const float x = probability(vector.x[c]);
      share.x[c] = __float_as_uint(x) >= pivot && kept > 0 ? __fdiv_rn(x, sum) : 0.0F;
    }
    to[i] = share;
  }
  if constexpr (kRanks > 1) cluster_sync();  // others have read this CTA's sums
}

}  // namespace k3::cuda
