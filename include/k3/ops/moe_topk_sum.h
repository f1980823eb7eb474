// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Joins what the chosen experts made of each token, already weighted (Kimi K3 technical report,
/// arXiv 2607.24653):
///
///   out[t, h] = bf16( sum_{j = 0 .. topk-1} input[t, j, h] )
///
/// One fp32 sum an element, from 0, j ascending, and one rounding at the end: the bits are the same
/// on every backend. topk = 0 gives zeros. NaN and infinities follow the sum.
///
/// Strides: unit along the last axis, the others any. No tensor needs more alignment than its
/// element; on CUDA 8-byte aligned rows with H a multiple of 4 run on the vector path, others on a
/// slower one. out must not overlap input.
struct MoeTopkSumArgs {
  ConstTensorView input;  ///< [T, topk, H] bf16
  TensorView out;         ///< [T, H] bf16
};

/// Deterministic. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void moe_topk_sum(const MoeTopkSumArgs& args, const ExecContext& ctx = {});
K3_API std::size_t moe_topk_sum_workspace_size(const MoeTopkSumArgs& args,
                                               const ExecContext& ctx = {});

}  // namespace k3
