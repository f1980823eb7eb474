// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3/tensor.h"

namespace k3::harness {

/// A host tensor that owns its bytes. The view may leave gaps in them (padded rows, a slice of a
/// wider row, an offset base), so that a test can see whether a kernel stayed inside its view.
class Tensor {
 public:
  Tensor() = default;

  /// Dense, zero-filled, 64-byte aligned.
  static Tensor dense(DType dtype, std::vector<std::int64_t> shape);

  /// Any strides (elements, >= 0); element 0 stands `offset` elements into the storage. Every byte
  /// of the storage holds `gap_byte` at first.
  static Tensor strided(DType dtype, std::vector<std::int64_t> shape,
                        std::vector<std::int64_t> strides, std::int64_t offset = 0,
                        std::byte gap_byte = std::byte{0xA5});

  [[nodiscard]] bool defined() const { return dtype_ != DType::kNone; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  [[nodiscard]] const std::vector<std::int64_t>& strides() const { return strides_; }
  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] bool is_dense() const;

  TensorView view();
  [[nodiscard]] ConstTensorView view() const;
  /// The same view over a copy of the storage that starts at `storage` on `device`.
  [[nodiscard]] TensorView view_at(void* storage, Device device) const;

  /// All bytes, gaps included.
  std::byte* storage() { return bytes_.get(); }
  [[nodiscard]] const std::byte* storage() const { return bytes_.get(); }
  [[nodiscard]] std::size_t storage_bytes() const { return num_bytes_; }

  /// Other elements of the same storage; element 0 stands `offset` elements behind this view's.
  [[nodiscard]] Tensor alias(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
                             std::int64_t offset = 0) const;

  /// Deep copy, gaps included.
  [[nodiscard]] Tensor clone() const;

  /// Element by flat row-major index of the logical shape, any dtype; set rounds to nearest even.
  [[nodiscard]] double get(std::int64_t flat) const;
  void set(std::int64_t flat, double value);

  /// The bytes of one element.
  [[nodiscard]] std::span<const std::byte> element(std::int64_t flat) const;

  /// All elements in row-major order.
  [[nodiscard]] std::vector<double> values() const;
  void fill(double value);
  /// Every byte of every element (not of the gaps) becomes `byte`: poison for outputs.
  void fill_bytes(std::byte byte);

 private:
  std::int64_t offset_of(std::int64_t flat) const;

  DType dtype_ = DType::kNone;
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
  std::int64_t offset_ = 0;
  std::size_t num_bytes_ = 0;
  std::shared_ptr<std::byte[]> bytes_;  ///< shared by copies of the handle; clone() for a deep copy
};

/// The tensors and scalars of one call, by argument name: the content of a `k3 run` file.
struct Bundle {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> scalars;  ///< empty value = absent

  [[nodiscard]] Bundle clone() const;
};

}  // namespace k3::harness
