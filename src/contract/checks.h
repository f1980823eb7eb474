// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "k3/error.h"
#include "k3/tensor.h"

namespace k3 {

/// One axis of an expected shape: its size, and the name that an error text gives it.
struct Axis {
  const char* name;
  std::int64_t size;
};

/// The rules that the ops' contracts are made of. Each throws ContractError with the argument, the
/// rule and the value seen. Absent tensors pass every rule but `present`.
class Contract {
 public:
  explicit Contract(const char* op) : op_(op) {}

  [[noreturn]] void fail(const char* argument, const std::string& rule,
                         const std::string& seen) const;
  void require(bool holds, const char* argument, const char* rule, const std::string& seen) const {
    if (!holds) fail(argument, rule, seen);
  }

  void present(const char* argument, const ConstTensorView& tensor) const;
  /// Dtype, rank, sane sizes and strides, a pointer where there are elements, aligned to an
  /// element.
  void tensor(const char* argument, const ConstTensorView& tensor,
              std::initializer_list<DType> dtypes, std::initializer_list<int> ranks) const;
  void shape(const char* argument, const ConstTensorView& tensor,
             std::initializer_list<Axis> axes) const;
  /// The last axis has unit stride (or fewer than two elements).
  void unit_last_stride(const char* argument, const ConstTensorView& tensor) const;
  /// Row-major without gaps from `axis` on.
  void dense_from(const char* argument, const ConstTensorView& tensor, int axis) const;
  /// Base pointer and every stride but the last are multiples of `bytes`.
  void aligned(const char* argument, const ConstTensorView& tensor, std::size_t bytes) const;
  /// No two elements share memory: asked of everything that is written.
  void no_self_overlap(const char* argument, const ConstTensorView& tensor) const;
  void no_overlap(const char* argument, const ConstTensorView& tensor, const char* other_argument,
                  const ConstTensorView& other) const;
  void same_device(const char* argument, const ConstTensorView& tensor, Device device) const;
  void finite(const char* argument, float value) const;
  /// Absent, or finite and below zero.
  void negative(const char* argument, const float* value) const;
  /// Fits an int.
  int small(const char* argument, const char* what, std::int64_t value) const;

 private:
  const char* op_;
};

/// A tensor with its argument's name, for rules over many at once.
struct NamedTensor {
  const char* name;
  ConstTensorView tensor;
};

/// Every tensor of `written` against every other one of `written` and all of `read`.
void no_overlaps(const Contract& contract, std::initializer_list<NamedTensor> written,
                 std::initializer_list<NamedTensor> read);

/// True where the two views may share a byte. Exact for views whose intervals are disjoint and for
/// interleaved views with a common outer stride (rows of one buffer, slots of one paged pool).
bool may_overlap(const ConstTensorView& a, const ConstTensorView& b);

}  // namespace k3
