// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "k3/tensor.h"

namespace k3::cuda {

/// True for null.
inline bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// A base and the strides between its rows, in elements of `dtype`: whether every row is aligned.
template <class... Strides>
bool rows_aligned(const void* base, DType dtype, std::size_t bytes, Strides... strides) {
  return is_aligned(base, bytes) &&
         ((static_cast<std::size_t>(strides) * size_of(dtype) % bytes == 0) && ...);
}

/// The same in units of four elements.
template <class... Strides>
bool quads_aligned(const void* base, DType dtype, Strides... strides) {
  return rows_aligned(base, dtype, 4 * size_of(dtype), strides...);
}

}  // namespace k3::cuda
