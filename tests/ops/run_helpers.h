// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

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

/// All outputs of a call on the CPU.
inline void expect_bits_do_not_depend_on_threads(const char* op, const Bundle& input) {
  const Bundle one = run_cpu(op, input, 1);
  for (int threads : {2, 3, 16}) {
    const Bundle many = run_cpu(op, input, threads);
    for (const ArgSpec& arg : find_driver(op)->args) {
      if (arg.role == Role::kInput || !one.tensors.contains(arg.name)) continue;
      EXPECT_TRUE(same_bits(one.tensors.at(arg.name), many.tensors.at(arg.name)))
          << arg.name << ", " << threads << " threads";
    }
  }
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

/// Puts `pitch` elements between the pieces of the first axis of these tensors, so that offsets
/// pass 2^31 elements, and expects all outputs as they are without. Their first axis is their
/// outermost.
inline void expect_far_pieces_agree(const char* op, const Bundle& dense,
                                    const std::vector<std::string>& names,
                                    std::int64_t pitch = (std::int64_t{1} << 30) + 8) {
  const Driver& driver = *find_driver(op);
  const Bundle reference = run_cpu(op, dense);
  Bundle far = dense.clone();
  Call call = host_call(driver, far);
  const auto piece = [](const Tensor& tensor, std::int64_t i) {
    const std::size_t bytes = tensor.storage_bytes() / static_cast<std::size_t>(tensor.shape()[0]);
    return std::span(tensor.storage() + static_cast<std::size_t>(i) * bytes, bytes);
  };
  std::map<std::string, SparseBuffer> buffers;
  const auto far_piece = [&](const std::string& name, std::int64_t i) {
    return buffers.at(name).at(pitch * i *
                               static_cast<std::int64_t>(size_of(call.tensors.at(name).dtype)));
  };
  for (const std::string& name : names) {
    TensorView& view = call.tensors.at(name);
    const std::int64_t pieces = view.shape[0];
    const SparseBuffer& buffer =
        buffers.try_emplace(name, static_cast<std::size_t>(pitch * pieces) * size_of(view.dtype))
            .first->second;
    if (!buffer.valid()) GTEST_SKIP() << "no address space for " << name;
    view.data = buffer.data();
    view.strides[0] = pitch;
    for (std::int64_t i = 0; i < pieces; ++i)
      std::ranges::copy(piece(dense.tensors.at(name), i), far_piece(name, i));
  }
  run_call(driver, call);
  for (const ArgSpec& arg : driver.args) {
    if (arg.role != Role::kOutput || !call.tensors.contains(arg.name)) continue;
    const Tensor& wanted = reference.tensors.at(arg.name);
    if (!buffers.contains(arg.name)) {
      EXPECT_TRUE(same_bits(far.tensors.at(arg.name), wanted)) << arg.name;
      continue;
    }
    for (std::int64_t i = 0; i < wanted.shape()[0]; ++i) {
      const auto bytes = piece(wanted, i);
      EXPECT_EQ(std::memcmp(far_piece(arg.name, i), bytes.data(), bytes.size()), 0)
          << arg.name << " " << i;
    }
  }
}

/// Large outputs are stored past the caches, from the first aligned vector on: 4200 rows of the
/// same inputs must give what one gives.
inline void expect_large_outputs_equal_their_parts(const char* op,
                                                   const std::vector<std::string>& inputs) {
  constexpr std::int64_t kRows = 4200;
  constexpr std::int64_t kWidth = 1001;
  Random random(5);
  Bundle b;
  for (const std::string& name : inputs)
    b.tensors[name] = repeated_normal(random, DType::kBF16, {kRows, kWidth}, kWidth);
  b.tensors["out"] = Tensor::strided(DType::kBF16, {kRows, kWidth}, {kWidth + 2, 1}, 3);
  const Bundle whole = run_cpu(op, b, 2);
  Bundle row;
  for (const std::string& name : inputs) row.tensors[name] = slice(b.tensors.at(name), 0, 0, 1);
  row.tensors["out"] = poisoned(DType::kBF16, {1, kWidth});
  const Bundle part = run_cpu(op, row);
  for (std::int64_t r : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2099}, kRows - 1})
    EXPECT_TRUE(same_bits(slice(whole.tensors.at("out"), 0, r, r + 1), part.tensors.at("out")))
        << r;
}

}  // namespace k3::harness
