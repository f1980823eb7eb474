// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/error.h"

#include <fmt/format.h>

#include "k3/error.h"

namespace k3::cuda {

void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line) {
  // Clears the error where it is not sticky, so that it does not show up in the caller's next
  // check.
  static_cast<void>(cudaGetLastError());
  throw CudaError(static_cast<int>(error),
                  fmt::format("{} failed with {} ({}) at {}:{}", call, cudaGetErrorName(error),
                              cudaGetErrorString(error), file, line));
}

}  // namespace k3::cuda
