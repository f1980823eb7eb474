// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// The gated output norm of KDA as an op of its own, per token n and head of 128 channels (K3
/// technical report):
///
///   out = bf16( raw * rsqrt(mean raw^2 + eps) * weight * sigmoid(gate) )
///
/// in fp32, the sum of squares in T128 order: after a KDA op without output norm it gives the bits
/// of that op with round_o = bf16 and its norm. A row of zeros gives zeros
/// where eps > 0. Range: arithmetic is fp32, so mean raw^2 + eps must stay between 1e-38 and 3e38 /
/// 128.
///
/// Strides: unit along the last axis, rows any. No tensor needs more alignment than its element.
/// out may be raw itself (same memory and strides), else they must not overlap.
struct KdaOutputNormArgs {
  ConstTensorView raw;     ///< [T, H*128] bf16
  ConstTensorView gate;    ///< [T, H*128] bf16, logits
  ConstTensorView weight;  ///< [128] f32, of every head
  TensorView out;          ///< [T, H*128] bf16

  float eps = 1e-5F;  ///< finite, >= 0. K3: 1e-5
};

/// Deterministic.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void kda_output_norm(const KdaOutputNormArgs& args, const ExecContext& ctx = {});
K3_API std::size_t kda_output_norm_workspace_size(const KdaOutputNormArgs& args,
                                                  const ExecContext& ctx = {});

}  // namespace k3
