// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

/// OpenBLAS, looked for at its first use: the command runs on machines without it.
namespace k3::mini {

/// c [M, N] = a [M, K] b [N, K]^T, row-major, fp32; rows of a and b are dense.
struct FloatProduct {
  std::int64_t M = 0;
  std::int64_t N = 0;
  std::int64_t K = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
};

/// Empty where the library is there, else the reason why not.
const std::string& openblas_missing();
/// On the calling thread alone.
void openblas_multiply(const FloatProduct& product);

}  // namespace k3::mini
