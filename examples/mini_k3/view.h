// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "k3/tensor.h"

/// Parts of tensors. Nothing is copied.
namespace k3::mini {

/// Entries [begin, end) of an axis.
template <class Void>
BasicTensorView<Void> slice(BasicTensorView<Void> view, int axis, std::int64_t begin,
                            std::int64_t end) {
  using Byte = typename BasicTensorView<Void>::Byte;
  const std::int64_t skipped = begin * view.strides[axis];
  view.data =
      static_cast<Byte*>(view.data) + skipped * static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[axis] = end - begin;
  return view;
}

template <class Void>
BasicTensorView<Void> rows(const BasicTensorView<Void>& view, std::int64_t begin,
                           std::int64_t end) {
  return slice(view, 0, begin, end);
}

template <class Void>
BasicTensorView<Void> columns(const BasicTensorView<Void>& view, std::int64_t begin,
                              std::int64_t end) {
  return slice(view, view.rank - 1, begin, end);
}

/// Entry `index` of an axis, without the axis.
template <class Void>
BasicTensorView<Void> select(const BasicTensorView<Void>& view, int axis, std::int64_t index) {
  BasicTensorView<Void> part = slice(view, axis, index, index + 1);
  --part.rank;
  for (int d = axis; d < part.rank; ++d) {
    part.shape[d] = part.shape[d + 1];
    part.strides[d] = part.strides[d + 1];
  }
  return part;
}

/// [.., n * D] as [.., n, D].
template <class Void>
BasicTensorView<Void> split_last(BasicTensorView<Void> view, std::int64_t n) {
  const int last = view.rank - 1;
  const std::int64_t width = view.shape[last] / n;
  view.rank += 1;
  view.shape[last] = n;
  view.strides[last] = width;
  view.shape[last + 1] = width;
  view.strides[last + 1] = 1;
  return view;
}

/// [..] as [1, ..].
template <class Void>
BasicTensorView<Void> batch_of_one(BasicTensorView<Void> view) {
  for (int d = view.rank; d > 0; --d) {
    view.shape[d] = view.shape[d - 1];
    view.strides[d] = view.strides[d - 1];
  }
  view.rank += 1;
  view.shape[0] = 1;
  view.strides[0] = view.shape[1] * view.strides[1];
  return view;
}

}  // namespace k3::mini
