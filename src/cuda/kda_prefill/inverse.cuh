// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/mma.cuh"

/// (I + L)^-1 of a strictly lower triangular L [64, 64]: forward substitution in fp32 of the four
/// diagonal blocks of 16, then blocks of 16 and of 32 join by
///
///   [ A 0 ; B D ]^-1 = [ A^-1  0 ; -D^-1 B A^-1  D^-1 ]
///
/// on tensor cores, each operand as the sum of two bf16 numbers and a product as three: relative
/// error 2^-16 and the range of fp32. No power of L is ever formed: on repeated keys with weak
/// decay those cancel catastrophically, while the entries of the inverse stay small.
namespace k3::cuda {

inline constexpr int kLowerSize = 64;
inline constexpr int kLowerPitch = 68;  ///< rows of floats aligned to 16 bytes, in other banks
using LowerMatrix = float[kLowerSize][kLowerPitch];

struct SplitA {
  FragmentA high;
  FragmentA low;
};
struct SplitB {
  std::uint32_t high[2];
  std::uint32_t low[2];
};

/// x = high + low, both rounded to bf16.
__device__ inline void split_pair(float2 x, std::uint32_t& high, std::uint32_t& low) {
  high = pack_bf16(x.x, x.y);
  const float2 rounded = unpack_bf16(high);
  low = pack_bf16(x.x - rounded.x, x.y - rounded.y);
}

/// Rows row0 .. + 15, columns column0 .. + 15.
__device__ inline SplitA load_split_a(const LowerMatrix& x, int row0, int column0, int lane) {
  SplitA a;
#pragma unroll
  for (int r = 0; r < 4; ++r)
    split_pair(*reinterpret_cast<const float2*>(
                   &x[row0 + lane / 4 + 8 * (r % 2)][column0 + 2 * (lane % 4) + 8 * (r / 2)]),
               a.high.a[r], a.low.a[r]);
  return a;
}

/// Rows row0 .. + 15, columns column0 .. + 7.
__device__ inline SplitB load_split_b(const LowerMatrix& x, int row0, int column0, int lane) {
  SplitB b;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row0 + 2 * (lane % 4) + 8 * r;
    const int column = column0 + lane / 4;
    split_pair({x[row][column], x[row + 1][column]}, b.high[r], b.low[r]);
  }
  return b;
}

__device__ inline SplitA split_operand(const FragmentC& left, const FragmentC& right) {
  SplitA a;
  split_pair({left.c[0], left.c[1]}, a.high.a[0], a.low.a[0]);
  split_pair({left.c[2], left.c[3]}, a.high.a[1], a.low.a[1]);
  split_pair({right.c[0], right.c[1]}, a.high.a[2], a.low.a[2]);
  split_pair({right.c[2], right.c[3]}, a.high.a[3], a.low.a[3]);
  return a;
}

__device__ inline void multiply_add(FragmentC& c, const SplitA& a, const SplitB& b) {
  multiply_add(c, a.low, b.high[0], b.high[1]);
  multiply_add(c, a.high, b.low[0], b.low[1]);
  multiply_add(c, a.high, b.high[0], b.high[1]);
}

/// The inverse of the diagonal block of 16 rows from `first`, in place; one warp. Zeros above the
/// diagonal are written, too.
__device__ inline void invert_diagonal_block(LowerMatrix& x, int first, int lane) {
  constexpr int kSize = 16;
  const int column = lane % kSize;
  float solution[kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    float sum = i == column ? 1.0F : 0.0F;
#pragma unroll
    for (int j0 = 0; j0 < i; j0 += 4) {
      const float4 row = *reinterpret_cast<const float4*>(&x[first + i][first + j0]);
      const float l[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
      for (int j = j0; j < i && j < j0 + 4; ++j) sum = fmaf(-l[j - j0], solution[j], sum);
    }
    solution[i] = sum;
  }
  __syncwarp();
  if (lane < kSize)
#pragma unroll
    for (int i = 0; i < kSize; ++i) x[first + i][first + column] = solution[i];
}

/// The blocks of 16 at `upper` and `upper` + 16 join; one warp.
__device__ inline void join_diagonal_blocks(LowerMatrix& x, int upper, int lane) {
  const int lower = upper + 16;
  const SplitA d = load_split_a(x, lower, lower, lane);
  FragmentC between[2];  // D^-1 B
#pragma unroll
  for (int n = 0; n < 2; ++n)
    multiply_add(between[n], d, load_split_b(x, lower, upper + 8 * n, lane));
  const SplitA left = split_operand(between[0], between[1]);
  FragmentC joined[2];
#pragma unroll
  for (int n = 0; n < 2; ++n)
    multiply_add(joined[n], left, load_split_b(x, upper, upper + 8 * n, lane));
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(
          &x[lower + lane / 4 + 8 * half][upper + 8 * n + 2 * (lane % 4)]) = {
          -joined[n].c[2 * half], -joined[n].c[2 * half + 1]};
}

/// Rows 32 + 16 (warp / 4) .. + 15, columns 8 (warp % 4) .. + 7 of the inverse, from the inverses
/// of the diagonal blocks of 32. Reads only.
__device__ inline FragmentC join_halves(const LowerMatrix& x, int warp, int lane) {
  constexpr int kHalfSize = 32;
  const int row0 = kHalfSize + 16 * (warp / 4);
  const int column0 = 8 * (warp % 4);
  FragmentC between[4];  // the row block of D^-1 B
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if (k > warp / 4) break;
    const SplitA d = load_split_a(x, row0, kHalfSize + 16 * k, lane);
#pragma unroll
    for (int n = 0; n < 4; ++n)
      multiply_add(between[n], d, load_split_b(x, kHalfSize + 16 * k, 8 * n, lane));
  }
  FragmentC joined;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if (16 * k + 15 < column0) continue;
    multiply_add(joined, split_operand(between[2 * k], between[2 * k + 1]),
                 load_split_b(x, 16 * k, column0, lane));
  }
#pragma unroll
  for (float& value : joined.c) value = -value;
  return joined;
}

}  // namespace k3::cuda
