// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/machine.h"

#include <new>

#include "k3/error.h"

namespace k3::mini {

Array::Array(Machine& machine, DType dtype, std::span<const std::int64_t> shape)
    : view_(nullptr, dtype, shape, machine.device()) {
  memory_ = machine.allocate(bytes());
  view_.data = memory_.get();
}

std::size_t Array::bytes() const {
  return static_cast<std::size_t>(view_.numel()) * size_of(view_.dtype);
}

#if !K3_WITH_CUDA
std::unique_ptr<Machine> make_cuda_machine() {
  throw UnsupportedError("this build of libk3 has no CUDA kernels");
}
#endif

}  // namespace k3::mini
