// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cuda/common/divider.h"

namespace k3::cuda {

/// Up to 2^21 outputs of bf16, where 8-byte accesses are faster than 16-byte ones: twice the warps,
/// half the arithmetic in a row. Past it the wider ones keep more bytes in flight.
inline bool few_outputs(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kFew = std::int64_t{1} << 21;
  return rows <= kFew && columns <= kFew && rows * columns <= kFew;
}

/// A block of rows and columns of a problem of vectors, small enough for 32-bit vector indices.
struct VectorBlock {
  std::int64_t first_row;
  std::int64_t first_vector;  ///< of a row
  std::uint32_t row_vectors;
  std::uint32_t num_vectors;  ///< in all rows of the block, below 2^31
  Divider by_row_vectors;

  [[nodiscard]] dim3 grid(int threads) const {
    return {(num_vectors - 1) / static_cast<unsigned>(threads) + 1};
  }
};

/// Calls `launch_block(block)` for each block until one fails: one block below 2^31 vectors, none
/// without vectors.
template <class LaunchBlock>
cudaError_t for_each_vector_block(std::int64_t rows, std::int64_t row_vectors,
                                  const LaunchBlock& launch_block) {
  constexpr std::int64_t kMaxVectors = (std::int64_t{1} << 31) - 1;
  for (std::int64_t vector = 0; vector < row_vectors; vector += kMaxVectors) {
    const std::int64_t vectors = std::min(kMaxVectors, row_vectors - vector);
    const Divider by_row_vectors(static_cast<std::uint32_t>(vectors));
    const std::int64_t max_rows = kMaxVectors / vectors;
    for (std::int64_t row = 0; row < rows; row += max_rows) {
      const std::int64_t block_rows = std::min(max_rows, rows - row);
      const cudaError_t error = launch_block(
          VectorBlock{row, vector, static_cast<std::uint32_t>(vectors),
                      static_cast<std::uint32_t>(block_rows * vectors), by_row_vectors});
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

}  // namespace k3::cuda
