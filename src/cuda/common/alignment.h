// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace k3::cuda {

/// True for null.
inline bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// A base and the strides between its rows, in elements: whether every row is aligned.
template <class T, class... Strides>
bool rows_aligned(const T* base, std::size_t bytes, Strides... strides) {
  return is_aligned(base, bytes) &&
         ((static_cast<std::size_t>(strides) * sizeof(T) % bytes == 0) && ...);
}

}  // namespace k3::cuda
