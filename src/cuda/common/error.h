// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace k3::cuda {

/// @throws CudaError with the call, the error's name and text, and file:line.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line);

}  // namespace k3::cuda

/// Throws k3::CudaError unless the call returns cudaSuccess.
#define K3_CUDA_CHECK(call)                                               \
  do {                                                                    \
    const cudaError_t k3_error_ = (call);                                 \
    if (k3_error_ != cudaSuccess)                                         \
      ::k3::cuda::throw_cuda_error(k3_error_, #call, __FILE__, __LINE__); \
  } while (false)
