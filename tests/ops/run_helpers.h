// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "harness/inputs.h"
#include "harness/runner.h"

namespace k3::harness {

/// Runs an op on the CPU over a copy of the bundle and returns the copy.
inline Bundle run_cpu(const char* op, const Bundle& bundle, int threads = 0) {
  Bundle result = bundle.clone();
  run_once(*find_driver(op), result, {.on = RunOn::kCpu, .threads = threads});
  return result;
}

/// The rows [begin, end) of an axis, as a dense copy.
inline Tensor slice(const Tensor& tensor, int axis, std::int64_t begin, std::int64_t end) {
  auto shape = tensor.shape();
  std::int64_t inner = 1;
  for (std::size_t d = static_cast<std::size_t>(axis) + 1; d < shape.size(); ++d) inner *= shape[d];
  const std::int64_t size = shape[axis];
  shape[axis] = end - begin;
  Tensor result = Tensor::dense(tensor.dtype(), shape);
  const std::int64_t row = (end - begin) * inner;
  for (std::int64_t i = 0; i < result.numel(); ++i)
    result.set(i, tensor.get(i / row * size * inner + begin * inner + i % row));
  return result;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const auto size = size_of(a.dtype());
  if (a.is_dense() && b.is_dense())
    return std::memcmp(a.view().data, b.view().data, static_cast<std::size_t>(a.numel()) * size) ==
           0;
  for (std::int64_t i = 0; i < a.numel(); ++i)
    if (a.get(i) != b.get(i)) return false;
  return true;
}

}  // namespace k3::harness
