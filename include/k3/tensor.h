// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "k3/export.h"

namespace k3 {

/// Element types. `kNone` marks an absent tensor.
enum class DType : std::uint8_t { kNone, kBF16, kF16, kF32, kF64, kI8, kU8, kI32, kI64, kF8E4M3 };

/// Bytes of one element; 0 for `kNone`.
K3_API std::size_t size_of(DType dtype);
/// Lower-case name: "bf16", "f32", "i64", ...
K3_API const char* name_of(DType dtype);

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

/// Where a tensor's bytes live. `index` is the CUDA ordinal, 0 on the CPU.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr int kMaxRank = 8;

/// A strided view of memory that somebody else owns. Strides are in elements, as in DLPack.
/// A default-constructed view is *absent* (an optional argument not given); an empty tensor is a
/// defined view with a zero in its shape, and may carry a null pointer.
template <class Void>
struct BasicTensorView {
  static_assert(std::is_void_v<Void>);
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;

  Void* data = nullptr;
  DType dtype = DType::kNone;
  Device device{};
  int rank = 0;
  std::int64_t shape[kMaxRank] = {};
  std::int64_t strides[kMaxRank] = {};

  BasicTensorView() = default;

  /// A dense row-major view. Ranks above `kMaxRank` are cut to an absent view with that rank, which
  /// every contract check refuses.
  BasicTensorView(Void* data, DType dtype, std::span<const std::int64_t> shape, Device device = {})
      : data(data), dtype(dtype), device(device), rank(static_cast<int>(shape.size())) {
    std::uint64_t stride = 1;  // wraps where a shape is absurd; the contract checks refuse it
    for (int d = rank < kMaxRank ? rank - 1 : -1; d >= 0; --d) {
      this->shape[d] = shape[d];
      strides[d] = static_cast<std::int64_t>(stride);
      stride *= shape[d] > 0 ? static_cast<std::uint64_t>(shape[d]) : 1;
    }
  }
  BasicTensorView(Void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                  Device device = {})
      : BasicTensorView(data, dtype, std::span(shape.begin(), shape.size()), device) {}

  /// A view with explicit strides; `shape` and `strides` have the same length.
  BasicTensorView(Void* data, DType dtype, std::span<const std::int64_t> shape,
                  std::span<const std::int64_t> strides, Device device = {})
      : BasicTensorView(data, dtype, shape, device) {
    for (int d = 0; d < rank && d < kMaxRank && d < static_cast<int>(strides.size()); ++d)
      this->strides[d] = strides[d];
  }

  /// A writable view converts to a read-only one.
  template <class Other>
    requires(std::is_const_v<Void> && !std::is_const_v<Other>)
  BasicTensorView(const BasicTensorView<Other>& other)
      : data(other.data), dtype(other.dtype), device(other.device), rank(other.rank) {
    for (int d = 0; d < kMaxRank; ++d) {
      shape[d] = other.shape[d];
      strides[d] = other.strides[d];
    }
  }

  /// False for an optional argument that was not given.
  [[nodiscard]] bool defined() const { return dtype != DType::kNone; }

  [[nodiscard]] std::int64_t numel() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank && d < kMaxRank; ++d) n *= shape[d];
    return n;
  }
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

/// "bf16 [2, 64, 12, 128]" with strides appended where the view is not dense.
K3_API std::string describe(const ConstTensorView& tensor);

}  // namespace k3
