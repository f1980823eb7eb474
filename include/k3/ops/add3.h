// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Routed experts, shared experts and residual of a K3 layer in one pass (Kimi K3 technical report,
/// arXiv 2607.24653):
///
///   out = bf16( bf16(a + b) + c )
///
/// Both sums are rounded to nearest even, as two additions of bf16 tensors one after the other
/// would be, so the bits are the same on every backend (of a NaN, that it is one).
///
/// Strides: unit along the last axis, and leading axes that fold into rows of one stride. No tensor
/// needs more alignment than its element; on CUDA rows that are multiples of 8 elements and aligned
/// to 16 bytes run on the vector path, others on a slower one. out may be a itself (same memory and
/// strides) and overlaps no other tensor.
struct Add3Args {
  ConstTensorView a;  ///< [...] bf16, rank 1..8
  ConstTensorView b;  ///< as a
  ConstTensorView c;  ///< as a
  TensorView out;     ///< as a
};

/// Deterministic. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void add3(const Add3Args& args, const ExecContext& ctx = {});
K3_API std::size_t add3_workspace_size(const Add3Args& args, const ExecContext& ctx = {});

}  // namespace k3
