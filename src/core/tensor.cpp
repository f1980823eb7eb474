// SPDX-License-Identifier: Apache-2.0
#include "k3/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace k3 {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kNone:
      return 0;
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3:
      return 1;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
  }
  return 0;
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kNone:
      return "none";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI8:
      return "i8";
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF8E4M3:
      return "f8_e4m3";
  }
  return "unknown";
}

std::string describe(const ConstTensorView& tensor) {
  if (!tensor.defined()) return "absent";
  if (tensor.rank < 0 || tensor.rank > kMaxRank)
    return fmt::format("{} of rank {}", name_of(tensor.dtype), tensor.rank);
  const std::span shape(tensor.shape, static_cast<std::size_t>(tensor.rank));
  const std::span strides(tensor.strides, static_cast<std::size_t>(tensor.rank));
  std::string text =
      fmt::format("{} [{}]", name_of(tensor.dtype), fmt::join(shape.begin(), shape.end(), ", "));
  std::uint64_t dense = 1;  // wraps where a shape is absurd: this text may be about just that
  bool is_dense = true;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    is_dense &= shape[d] == 1 || static_cast<std::uint64_t>(strides[d]) == dense;
    dense *= static_cast<std::uint64_t>(shape[d]);
  }
  if (!is_dense)
    text += fmt::format(" strides ({})", fmt::join(strides.begin(), strides.end(), ", "));
  return text;
}

}  // namespace k3
