// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "k3/tensor.h"

namespace k3 {

/// A vector of integers of 32 or 64 bits in the memory of the call's device: slots, rows, lengths.
struct IntegerList {
  const void* data = nullptr;  ///< null: absent, or empty
  bool is_wide = false;        ///< 64 bits
  std::int64_t stride = 1;     ///< elements
  std::int64_t size = 0;

  IntegerList() = default;
  explicit IntegerList(const ConstTensorView& view)
      : data(view.data),
        is_wide(view.dtype == DType::kI64),
        stride(view.rank == 1 ? view.strides[0] : 1),
        size(view.rank == 1 ? view.shape[0] : 0) {}

  /// Without the first n.
  [[nodiscard]] IntegerList from(std::int64_t n) const {
    IntegerList rest = *this;
    rest.data = static_cast<const std::byte*>(data) + n * stride * (is_wide ? 8 : 4);
    rest.size -= n;
    return rest;
  }
  [[nodiscard]] bool defined() const { return data != nullptr; }
  /// Only where the memory is the host's.
  std::int64_t operator[](std::int64_t n) const {
    return is_wide ? static_cast<const std::int64_t*>(data)[n * stride]
                   : static_cast<const std::int32_t*>(data)[n * stride];
  }
};

}  // namespace k3
