// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// What stands before K3's experts in one launch (Kimi K3 technical report, arXiv 2607.24653): the
/// router, its choice packed into words, and the experts' input quantised. Each output has the bits
/// of the op that makes it alone:
///
///   topk_weights, topk_ids   moe_route_topk of scores and bias, in ascending order of id
///   packed                   moe_pack_topk of those two
///   x_q, x_s                 per_token_group_quant of x with UE8M0 scales
///
/// Strides: unit along the last axis, rows any; x_s any. No pointer needs more alignment than its
/// element; on CUDA the one launch takes 896 experts with topk 16, rows of x on 16 bytes and of x_q
/// on 8 and a group size of a power of two, other calls two. The outputs overlap nothing.
struct MoeRouteQuantArgs {
  ConstTensorView scores;   ///< [T, E] bf16 or f32, router logits
  ConstTensorView bias;     ///< [E] f32, correction
  ConstTensorView x;        ///< [T, D] bf16 or f32
  TensorView topk_weights;  ///< [T, topk] f32
  TensorView topk_ids;      ///< [T, topk] i32
  TensorView packed;        ///< [T, topk] i32; optional
  TensorView x_q;           ///< [T, D] e4m3
  TensorView x_s;           ///< [T, ceil(G/4)] i32 or [T, G] f32, G = D / group_size

  int topk = 16;                       ///< 1..64, at most E. K3: 16 of 896
  bool renormalize = true;             ///< weights of a token sum to routed_scaling_factor
  float routed_scaling_factor = 1.0F;  ///< finite; 1 is none. K3: 1
  int group_size = 32;                 ///< a multiple of 16 in 16..256 that divides D. K3: 32
};

/// Deterministic; bits of the router depend on the backend alone. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void moe_route_quant(const MoeRouteQuantArgs& args, const ExecContext& ctx = {});
K3_API std::size_t moe_route_quant_workspace_size(const MoeRouteQuantArgs& args,
                                                  const ExecContext& ctx = {});

}  // namespace k3
