// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// The front of K3's latent mixture of experts (Kimi K3 technical report, arXiv 2607.24653): the
/// router's gate and the projection down to the experts' width share one product, whose rows the
/// epilogue takes apart:
///
///   merged = hidden @ weight^T                     fp32; weight = [gate; down], E + L rows
///   topk_weights, topk_ids = moe_route_topk of merged[:, :E] and bias
///   routed = bf16(merged[:, E:])
///
/// Logits stay in fp32: rounded to bf16 they would choose other experts on a good part of the rows.
///
/// Strides: unit along the last axis, rows any. No pointer needs more alignment than its element.
/// The outputs overlap nothing.
struct MoeFrontArgs {
  ConstTensorView hidden;   ///< [T, H] bf16
  ConstTensorView weight;   ///< [E + L, H] bf16
  ConstTensorView bias;     ///< [E] f32, correction
  TensorView topk_weights;  ///< [T, topk] f32
  TensorView topk_ids;      ///< [T, topk] i32
  TensorView routed;        ///< [T, L] bf16

  int topk = 16;                       ///< 1..64, at most E. K3: 16 of 896
  bool renormalize = true;             ///< weights of a token sum to routed_scaling_factor
  float routed_scaling_factor = 1.0F;  ///< finite; 1 is none. K3: 1
  bool sorted = false;                 ///< by rank instead of by id
};

/// Deterministic for the same device and libraries. On CUDA the product is cuBLASLt's where its
/// library is found at the first call (libcublasLt.so of this build's CUDA version; the loader's
/// path, then $CUDA_HOME, $CUDA_PATH and /usr/local/cuda), else a plain kernel's. The workspace
/// holds logits; on CUDA all of merged.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void moe_front(const MoeFrontArgs& args, const ExecContext& ctx = {});
K3_API std::size_t moe_front_workspace_size(const MoeFrontArgs& args, const ExecContext& ctx = {});

/// What follows the product in moe_front, for callers that bring their own.
struct MoeFrontEpilogueArgs {
  ConstTensorView merged;   ///< [T, E + L] f32; last stride 1
  ConstTensorView bias;     ///< [E] f32, correction
  TensorView topk_weights;  ///< [T, topk] f32
  TensorView topk_ids;      ///< [T, topk] i32
  TensorView routed;        ///< [T, L] bf16

  int topk = 16;
  bool renormalize = true;
  float routed_scaling_factor = 1.0F;
  bool sorted = false;
};

/// Deterministic; bits depend on the backend alone. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void moe_front_epilogue(const MoeFrontEpilogueArgs& args, const ExecContext& ctx = {});
K3_API std::size_t moe_front_epilogue_workspace_size(const MoeFrontEpilogueArgs& args,
                                                     const ExecContext& ctx = {});

}  // namespace k3
