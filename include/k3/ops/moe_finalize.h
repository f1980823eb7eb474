// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Brings the rows of the experts' last product back to their tokens, weighted by the router (Kimi
/// K3 technical report, arXiv 2607.24653):
///
///   out[t, h] = bf16( sum_{j = 0 .. topk-1, idx[t, j] >= 0} topk_weights[t, j]
///                                                           * experts_out[idx[t, j], h] )
///
/// One chain of fp32 fused multiply-adds an element, from 0, j ascending, and one rounding at the
/// end. A negative idx is a slot without a row and counts nothing; a token of such slots alone, or
/// topk = 0, gives zeros.
///
/// An idx of P or more is a ContractError in host memory, and counts as negative in device memory.
/// Two slots may name one row.
///
/// Strides: unit along the last axis, rows any; idx dense. No tensor needs more alignment than its
/// element; on CUDA 16-byte aligned rows with H a multiple of 8 run on the vector path, others on a
/// slower one. out must not overlap the others.
struct MoeFinalizeArgs {
  ConstTensorView experts_out;   ///< [P, H] bf16
  ConstTensorView idx;           ///< [T, topk] or [T*topk] i32: the row of experts_out
  ConstTensorView topk_weights;  ///< [T, topk] bf16 or f32
  TensorView out;                ///< [T, H] bf16
};

/// Deterministic; with bf16 weights the bits are the same on every backend, as long as no product
/// is subnormal. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void moe_finalize(const MoeFinalizeArgs& args, const ExecContext& ctx = {});
K3_API std::size_t moe_finalize_workspace_size(const MoeFinalizeArgs& args,
                                               const ExecContext& ctx = {});

}  // namespace k3
