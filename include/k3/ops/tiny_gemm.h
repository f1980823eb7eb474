// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// The most rows of x. A product with more is cuBLASLt's to make.
inline constexpr int kTinyGemmMaxRows = 16;

/// A linear layer for a handful of tokens: the router and the small projections of a K3 layer in
/// decode (Kimi K3 technical report, arXiv 2607.24653).
///
///   out[m, n] = cast( sum_k x[m, k] * w[n, k] )
///
/// Products and sums are fp32, one rounding at the end where out is bf16; K = 0 gives zeros. A row
/// of out has the same bits, by one variant, whatever the others hold and however many they are.
///
/// Strides: unit along the last axis, rows any. No tensor needs more alignment than its element; on
/// CUDA, w and x whose rows are aligned to 16 bytes, with K a multiple of 8, run on tensor cores,
/// others on a slower variant. out must not overlap x or w.
///
/// On CUDA, w counts as constant (ExecContext::pdl); x does not.
struct TinyGemmArgs {
  ConstTensorView x;  ///< [M, K] bf16, M from 0 to 16
  ConstTensorView w;  ///< [N, K] bf16
  TensorView out;     ///< [M, N] bf16 or f32
};

/// Deterministic; bits depend on the backend and, on CUDA, on the variant (which N, K and the
/// alignment of x and w choose, not M) and the chip. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void tiny_gemm(const TinyGemmArgs& args, const ExecContext& ctx = {});
K3_API std::size_t tiny_gemm_workspace_size(const TinyGemmArgs& args, const ExecContext& ctx = {});

}  // namespace k3
