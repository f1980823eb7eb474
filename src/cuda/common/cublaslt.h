// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// Matrix products by cuBLASLt. The library is not linked: its shared object is looked for at the
/// first use, once per process. What it takes to start a product, handles and the choice of an
/// algorithm, stays on the host and is kept per device and shape.
namespace k3::cuda {

/// c = a b^T in row-major order: bf16 operands, fp32 sums; results in fp32, or rounded to bf16.
struct LtProduct {
  std::int64_t M = 0;
  std::int64_t N = 0;
  std::int64_t K = 0;
  const void* a = nullptr;  ///< [M, K]; rows do not overlap
  std::int64_t a_stride = 0;
  const void* b = nullptr;  ///< [N, K]; rows do not overlap
  std::int64_t b_stride = 0;
  float* c = nullptr;      ///< [M, N] dense, on 256 bytes; or else
  void* c_bf16 = nullptr;  ///< the same in bf16
};

/// Device memory for the product's own use, on 256 bytes.
inline constexpr std::size_t kCublasLtWorkspaceBytes = std::size_t{32} << 20;

/// Null where `cublaslt_multiply` can serve the product on the device, else the reason why not.
const char* cublaslt_refusal(const LtProduct& product, int device);

/// Enqueues the product. @throws CudaError
void cublaslt_multiply(const LtProduct& product, void* workspace, int device, cudaStream_t stream);

}  // namespace k3::cuda
