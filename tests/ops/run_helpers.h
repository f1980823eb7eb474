// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "harness/host_memory.h"
#include "harness/inputs.h"
#include "harness/runner.h"

namespace k3::harness {

/// Runs an op on the CPU over a copy of the bundle and returns the copy.
inline Bundle run_cpu(const char* op, const Bundle& bundle, int threads = 0) {
  Bundle result = bundle.clone();
  run_once(*find_driver(op), result, {.on = RunOn::kCpu, .threads = threads});
  return result;
}

/// Runs a call that a bundle cannot hold (views that share memory, or lie far apart) on the CPU,
/// with a workspace of exactly the bytes it asks for, each of which is `fill`.
inline void run_call(const Driver& driver, const Call& call, int threads = 0,
                     std::byte fill = std::byte{0xFF}) {
  ExecContext ctx;
  ctx.threads = threads;
  HostWorkspace workspace(driver.workspace_size(call, ctx), fill);
  ctx.workspace = workspace.get();
  driver.run(call, ctx);
  workspace.check();
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
  for (std::int64_t i = 0; i < a.numel(); ++i)
    if (!std::ranges::equal(a.element(i), b.element(i))) return false;
  return true;
}

/// Memory that is reserved but only paged in where it is touched: for offsets past 2^31 elements.
class SparseBuffer {
 public:
  explicit SparseBuffer(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseBuffer() {
    if (valid()) munmap(data_, bytes_);
  }
  SparseBuffer(const SparseBuffer&) = delete;
  SparseBuffer& operator=(const SparseBuffer&) = delete;
  [[nodiscard]] bool valid() const { return data_ != MAP_FAILED; }
  [[nodiscard]] void* data() const { return data_; }
  /// The byte at an offset.
  [[nodiscard]] std::byte* at(std::int64_t offset) const {
    return static_cast<std::byte*>(data_) + offset;
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace k3::harness
