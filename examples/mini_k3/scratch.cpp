// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/scratch.h"

#include <algorithm>

namespace k3::mini {

TensorView Scratch::take(DType dtype, std::initializer_list<std::int64_t> shape) {
  constexpr std::size_t kAlignment = 256;
  constexpr std::size_t kBlockBytes = std::size_t{4} << 20;
  TensorView view(nullptr, dtype, shape, machine_.device());
  const std::size_t bytes =
      (static_cast<std::size_t>(view.numel()) * size_of(dtype) + kAlignment - 1) / kAlignment *
      kAlignment;
  while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const std::size_t size = std::max(bytes, kBlockBytes);
    blocks_.push_back({machine_.allocate(size), size});
  }
  view.data = static_cast<std::byte*>(blocks_[block_].memory.get()) + used_;
  used_ += bytes;
  return view;
}

}  // namespace k3::mini
