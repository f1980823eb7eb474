// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/mbarrier.cuh"
#include "cuda/common/packed_bf16.cuh"

/// Warp-level matrix products that every chip from sm_90 on has: m16n8k16, bf16 operands, fp32
/// sums. Fragments, with g = lane / 4 and t = lane % 4; a pair is two neighbouring columns:
///
///   A [16 x 16]  a0 (g, 2t)  a1 (g + 8, 2t)  a2 (g, 2t + 8)  a3 (g + 8, 2t + 8)      pairs
///   B [16 x 8]   b0 rows 2t, 2t + 1 of column g;  b1 rows 2t + 8, 2t + 9             pairs
///   C [16 x 8]   c0 (g, 2t)  c1 (g, 2t + 1)  c2 (g + 8, 2t)  c3 (g + 8, 2t + 1)      floats
///
/// Two neighbouring C tiles, rounded, are an A fragment: sums go on as operands without leaving
/// their registers.
namespace k3::cuda {

struct FragmentA {
  std::uint32_t a[4];
};
struct FragmentC {
  float c[4] = {};
};
/// 16 x 16 sums: half h holds columns 8h .. 8h + 7.
struct SumTile {
  FragmentC half[2];
};

/// The product of two pairs, rounded.
__device__ inline std::uint32_t multiply_pairs(std::uint32_t x, std::uint32_t y) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(x), "r"(y));
  return product;
}

/// C += A B
__device__ inline void multiply_add(FragmentC& c, const FragmentA& a, std::uint32_t b0,
                                    std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c.c[0]), "+f"(c.c[1]), "+f"(c.c[2]), "+f"(c.c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "r"(b0), "r"(b1));
}

/// Two C tiles side by side += A B, with B as `load_b` and `load_b_of_transpose` give it.
__device__ inline void multiply_add(FragmentC& left, FragmentC& right, const FragmentA& a,
                                    const std::uint32_t (&b)[4]) {
  multiply_add(left, a, b[0], b[1]);
  multiply_add(right, a, b[2], b[3]);
}

/// Two C tiles side by side, rounded.
__device__ inline FragmentA as_operand(const FragmentC& left, const FragmentC& right) {
  return {{pack_bf16(left.c[0], left.c[1]), pack_bf16(left.c[2], left.c[3]),
           pack_bf16(right.c[0], right.c[1]), pack_bf16(right.c[2], right.c[3])}};
}

/// Four 8 x 8 matrices from shared memory; lane i names row i % 8 of matrix i / 8, 16 bytes.
__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
/// The same, each matrix transposed.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

/// Four 8 x 8 matrices to shared memory, each transposed: lane i names row i % 8 of what stands
/// there of matrix i / 8, 16 bytes.
__device__ inline void store_matrices_transposed(const std::uint32_t (&from)[4],
                                                 std::uint32_t row) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

/// The same, as they stand.
__device__ inline void store_matrices(const std::uint32_t (&from)[4], std::uint32_t row) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

/// A bf16 matrix in shared memory whose rows are kPieces pieces of 16 bytes. Piece i of row r
/// stands at i ^ (r % 8): eight rows of one piece lie in different banks.
template <int kColumns>
struct SwizzledTile {
  static constexpr int kPieces = kColumns / 8;
  static_assert(kPieces % 8 == 0);
  static constexpr int kRowBytes = 2 * kColumns;

  /// Byte offset of an element.
  __device__ static int offset(int row, int column) {
    return row * kRowBytes + (((column >> 3) ^ (row & 7)) << 4) + ((column & 7) << 1);
  }
};

/// A lane's address in a tile at `base` (a multiple of the row's bytes), for the four matrices of
/// rows 0 to 15 and columns 0 to 15. From there it is two instructions to any others.
template <int kColumns>
class TileLane {
 public:
  /// Of rows row0 .. + 15, columns column0 .. + 15; both multiples of 16.
  [[nodiscard]] __device__ std::uint32_t at(int row0, int column0) const {
    return (address_ ^ static_cast<std::uint32_t>(2 * column0)) +
           static_cast<std::uint32_t>(row0 * SwizzledTile<kColumns>::kRowBytes);
  }

 protected:
  __device__ TileLane(std::uint32_t base, int row, int column)
      : address_(base + SwizzledTile<kColumns>::offset(row, column)) {}

 private:
  std::uint32_t address_;
};

/// Matrices in the order of a fragment A: one above the other, then the next columns.
template <int kColumns>
struct RowsLane : TileLane<kColumns> {
  __device__ RowsLane(std::uint32_t base, int lane)
      : TileLane<kColumns>(base, lane % 16, 8 * (lane / 16)) {}
};

/// Side by side, then the next rows.
template <int kColumns>
struct ColumnsLane : TileLane<kColumns> {
  __device__ ColumnsLane(std::uint32_t base, int lane)
      : TileLane<kColumns>(base, lane % 8 + 8 * (lane / 16), 8 * (lane / 8 % 2)) {}
};

/// Fragment A of a tile's rows row0 .. + 15, columns column0 .. + 15.
template <int kColumns>
__device__ FragmentA load_a(const RowsLane<kColumns>& lane, int row0, int column0) {
  FragmentA fragment;
  load_matrices(fragment.a, lane.at(row0, column0));
  return fragment;
}

template <int kColumns>
__device__ void store_a(const FragmentA& fragment, const RowsLane<kColumns>& lane, int row0,
                        int column0) {
  store_matrices(fragment.a, lane.at(row0, column0));
}

/// Fragments B of a product with the transpose of a tile: columns n0 .. + 15 of B are tile rows,
/// its rows k0 .. + 15 tile columns. b[0], b[1] for columns n0 .. + 7, b[2], b[3] for the others.
template <int kColumns>
__device__ void load_b_of_transpose(std::uint32_t (&b)[4], const ColumnsLane<kColumns>& lane,
                                    int n0, int k0) {
  load_matrices(b, lane.at(n0, k0));
}

/// Fragments B of a product with a tile as it stands: rows k0 .. + 15, columns n0 .. + 15.
template <int kColumns>
__device__ void load_b(std::uint32_t (&b)[4], const RowsLane<kColumns>& lane, int k0, int n0) {
  load_matrices_transposed(b, lane.at(k0, n0));
}

}  // namespace k3::cuda
