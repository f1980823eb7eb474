// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/bf16.h"
#include "cuda/common/mma.cuh"

/// bf16 tiles of 16 x 16 in padded rows of shared memory, and their products with fp32 sums.
namespace k3::cuda {

/// A tile as the operands of mma hold it: as the left one whole, as the right one two tiles of 8
/// columns, `{a[0], a[1]}` and `{a[2], a[3]}`.
using Bf16Tile = FragmentA;

/// Where a lane's row of eight elements stands, from the tile's first element on: lanes 0-15 name
/// the rows' left halves, 16-31 their right halves. Aligned to 16 bytes.
__device__ inline const bf16* tile_row(const bf16* tile, int pitch, int lane) {
  return tile + lane % 16 * pitch + lane / 16 * 8;
}

/// As a left operand: row-major as it stands.
__device__ inline Bf16Tile load_left(const bf16* tile, int pitch, int lane) {
  Bf16Tile t;
  load_matrices(t.a, shared_address(tile_row(tile, pitch, lane)));
  return t;
}

/// As a right operand: the rows run along the axis that is summed over.
__device__ inline Bf16Tile load_right(const bf16* tile, int pitch, int lane) {
  Bf16Tile t;
  load_matrices_transposed(t.a, shared_address(tile_row(tile, pitch, lane)));
  return t;
}

/// sum += left right
__device__ inline void multiply_add(const Bf16Tile& left, const Bf16Tile& right, SumTile& sum) {
  multiply_add(sum.half[0], sum.half[1], left, right.a);
}

}  // namespace k3::cuda
