// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "core/bf16.h"
#include "k3/ops/tiny_gemm.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements, between rows.
struct TinyGemmProblem {
  int M = 0;
  int N = 0;
  int K = 0;
  const bf16* x = nullptr;  ///< [M, K]
  std::int64_t x_stride = 0;
  const bf16* w = nullptr;  ///< [N, K]
  std::int64_t w_stride = 0;
  void* out = nullptr;  ///< [M, N]
  DType out_dtype = DType::kBF16;
  std::int64_t out_stride = 0;
  Device device;
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<TinyGemmArgs>> tiny_gemm_args();

/// @throws ContractError
TinyGemmProblem check(const TinyGemmArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
