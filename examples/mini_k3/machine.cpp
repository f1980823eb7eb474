// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/machine.h"

#include <algorithm>

#include "examples/mini_k3/view.h"
#include "k3/error.h"
#include "k3/ops/tiny_gemm.h"

namespace k3::mini {

Array::Array(Machine& machine, DType dtype, std::span<const std::int64_t> shape)
    : view_(nullptr, dtype, shape, machine.device()) {
  memory_ = machine.allocate(bytes());
  view_.data = memory_.get();
}

std::size_t Array::bytes() const {
  return static_cast<std::size_t>(view_.numel()) * size_of(view_.dtype);
}

void Machine::linear(const ConstTensorView& x, const ConstTensorView& w, const TensorView& out) {
  const std::int64_t num_rows = x.shape[0];
  if (num_rows > kTinyGemmMaxRows && multiply(x, w, out)) return;
  for (std::int64_t begin = 0; begin < num_rows; begin += kTinyGemmMaxRows) {
    const std::int64_t end = std::min<std::int64_t>(begin + kTinyGemmMaxRows, num_rows);
    TinyGemmArgs args;
    args.x = rows(x, begin, end);
    args.w = w;
    args.out = rows(out, begin, end);
    tiny_gemm(args, context());
  }
}

#if !K3_WITH_CUDA
std::unique_ptr<Machine> make_cuda_machine() {
  throw UnsupportedError("this build of libk3 has no CUDA kernels");
}
#endif

}  // namespace k3::mini
