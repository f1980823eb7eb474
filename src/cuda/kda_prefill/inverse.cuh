// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/mma.cuh"

/// (I + L)^-1 of a strictly lower triangular L [64, 64]: forward substitution in fp32 of the four
/// diagonal blocks of 16, then blocks of 16 and of 32 join by
///
///   [ A 0 ; B D ]^-1 = [ A^-1  0 ; -D^-1 B A^-1  D^-1 ]
///
/// on tensor cores with tf32 operands: relative error 2^-11 of each and the range of fp32. No power
/// of L is ever formed: on repeated keys with weak decay those cancel catastrophically, while the
/// entries of the inverse stay small.
namespace k3::cuda {

inline constexpr int kLowerSize = 64;
inline constexpr int kLowerPitch = 68;  ///< rows of floats aligned to 16 bytes, in other banks
using LowerMatrix = float[kLowerSize][kLowerPitch];

/// A fragment A of 16 x 8 and a fragment B of 8 x 8. The order of the columns of A and rows of B
/// among themselves is free: with g = lane / 4 and t = lane % 4
///
///   A  a0 (g, 2t)  a1 (g + 8, 2t)  a2 (g, 2t + 1)  a3 (g + 8, 2t + 1)
///   B  b0 (2t, g)  b1 (2t + 1, g)
///
/// so that a C tile (common/mma.cuh) is a fragment A as it stands.
struct Tf32A {
  std::uint32_t a[4];
};
struct Tf32B {
  std::uint32_t b[2];
};

/// A float for a product that takes its upper 19 bits as a tf32 number: half a unit more, the
/// nearest one, halves away from zero. A NaN may be lost on the way; where L has one, factors that
/// do not come from here have it, too.
__device__ inline std::uint32_t round_to_tf32(float x) { return __float_as_uint(x) + 0x1000U; }

/// Rows row0 .. + 15, columns column0 .. + 7.
__device__ inline Tf32A load_tf32_a(const LowerMatrix& x, int row0, int column0, int lane) {
  Tf32A a;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float2 pair =
        *reinterpret_cast<const float2*>(&x[row0 + lane / 4 + 8 * r][column0 + 2 * (lane % 4)]);
    a.a[r] = round_to_tf32(pair.x);
    a.a[2 + r] = round_to_tf32(pair.y);
  }
  return a;
}

/// Rows row0 .. + 7, columns column0 .. + 7.
__device__ inline Tf32B load_tf32_b(const LowerMatrix& x, int row0, int column0, int lane) {
  const float* const at = &x[row0 + 2 * (lane % 4)][column0 + lane / 4];
  return {{round_to_tf32(at[0]), round_to_tf32(at[kLowerPitch])}};
}

__device__ inline Tf32A as_tf32_operand(const FragmentC& c) {
  return {
      {round_to_tf32(c.c[0]), round_to_tf32(c.c[2]), round_to_tf32(c.c[1]), round_to_tf32(c.c[3])}};
}

/// C += A B
__device__ inline void multiply_add(FragmentC& c, const Tf32A& a, const Tf32B& b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c.c[0]), "+f"(c.c[1]), "+f"(c.c[2]), "+f"(c.c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "r"(b.b[0]), "r"(b.b[1]));
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
  FragmentC between[2];  // D^-1 B
#pragma unroll
  for (int k = 0; k < 16; k += 8) {
    const Tf32A d = load_tf32_a(x, lower, lower + k, lane);
#pragma unroll
    for (int n = 0; n < 2; ++n)
      multiply_add(between[n], d, load_tf32_b(x, lower + k, upper + 8 * n, lane));
  }
  FragmentC joined[2];
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int n = 0; n < 2; ++n)
      multiply_add(joined[n], as_tf32_operand(between[k]),
                   load_tf32_b(x, upper + 8 * k, upper + 8 * n, lane));
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
  for (int k = 0; k < kHalfSize; k += 8) {
    if (k >= 16 && warp < 4) break;  // above the diagonal of D
    const Tf32A d = load_tf32_a(x, row0, kHalfSize + k, lane);
#pragma unroll
    for (int n = 0; n < 4; ++n)
      multiply_add(between[n], d, load_tf32_b(x, kHalfSize + k, 8 * n, lane));
  }
  FragmentC joined;
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (8 * k >= column0)
      multiply_add(joined, as_tf32_operand(between[k]), load_tf32_b(x, 8 * k, column0, lane));
#pragma unroll
  for (float& value : joined.c) value = -value;
  return joined;
}

}  // namespace k3::cuda
