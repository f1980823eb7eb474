// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// SiTU-GLU, the activation of every K3 feed-forward block (Kimi K3 technical report, arXiv
/// 2607.24653).
///
///   gate = input[..., :D],  up = input[..., D:]
///   out  = bf16( beta * tanh(gate / beta) * sigmoid(gate) * soft(up) )
///   soft(up) = linear_beta * tanh(up / linear_beta), or up where linear_beta is absent
///
/// The sigmoid takes the raw gate. fp32 inside, one rounding at the end; |out| <= |beta *
/// linear_beta|. gate = -inf gives a zero, +-inf of up gives +-linear_beta, NaN gives NaN.
///
/// Neither pointer needs more alignment than its element; on CUDA 16-byte aligned rows run on the
/// vector path, others on a slower one.
struct SituAndMulArgs {
  ConstTensorView input;  ///< [..., 2D] bf16; rank 1..8, last stride 1, rows of any stride
  TensorView out;         ///< [..., D] bf16; as input; must not overlap it
  float beta = 4.0F;      ///< soft cap of the gate; finite, not 0. K3: 4
  std::optional<float> linear_beta;  ///< soft cap of up; finite, not 0. K3: 25
};

/// Deterministic; bits depend on the backend alone. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void situ_and_mul(const SituAndMulArgs& args, const ExecContext& ctx = {});
K3_API std::size_t situ_and_mul_workspace_size(const SituAndMulArgs& args,
                                               const ExecContext& ctx = {});

}  // namespace k3
