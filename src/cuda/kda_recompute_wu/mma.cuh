// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/bf16.h"
#include "cuda/common/cluster.cuh"

/// bf16 tiles of 16 x 16 in shared memory, and their products with fp32 sums, on the tensor cores
/// that every chip from sm_80 on has.
namespace k3::cuda {

/// A tile as the operands of mma hold it: as the left one whole, as the right one two tiles of 8
/// columns, `{x[0], x[1]}` and `{x[2], x[3]}`.
struct Bf16Tile {
  std::uint32_t x[4];
};

/// Where a lane's row of eight elements stands, from the tile's first element on: lanes 0-15 name
/// the rows' left halves, 16-31 their right halves. Aligned to 16 bytes.
__device__ inline const bf16* tile_row(const bf16* tile, int pitch, int lane) {
  return tile + lane % 16 * pitch + lane / 16 * 8;
}

/// As a left operand: row-major as it stands.
__device__ inline Bf16Tile load_left(const bf16* tile, int pitch, int lane) {
  Bf16Tile t;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(t.x[0]), "=r"(t.x[1]), "=r"(t.x[2]), "=r"(t.x[3])
               : "r"(shared_address(tile_row(tile, pitch, lane)))
               : "memory");
  return t;
}

/// As a right operand: the rows run along the axis that is summed over.
__device__ inline Bf16Tile load_right(const bf16* tile, int pitch, int lane) {
  Bf16Tile t;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(t.x[0]), "=r"(t.x[1]), "=r"(t.x[2]), "=r"(t.x[3])
               : "r"(shared_address(tile_row(tile, pitch, lane)))
               : "memory");
  return t;
}

/// 16 x 16 sums: half h holds columns 8h .. 8h + 7; of those a lane has columns 2 (lane % 4) and
/// the next of rows lane / 4 (the first two values) and lane / 4 + 8 (the others).
struct SumTile {
  float half[2][4] = {};
};

/// sum += left right
__device__ inline void multiply_add(const Bf16Tile& left, const Bf16Tile& right, SumTile& sum) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float(&c)[4] = sum.half[h];
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(left.x[0]), "r"(left.x[1]), "r"(left.x[2]), "r"(left.x[3]), "r"(right.x[2 * h]),
          "r"(right.x[2 * h + 1]));
  }
}

}  // namespace k3::cuda
