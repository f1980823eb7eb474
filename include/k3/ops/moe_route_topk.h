// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// The router of K3's mixture of experts (Kimi K3 technical report, arXiv 2607.24653): for each
/// token the k experts of the largest biased score, with bias-free weights. All in fp32:
///
///   a_e = 1 / (1 + exp(-scores_e)) in fp32: 0 below -88.7, where exp leaves its range
///   b_e = a_e + bias_e, a NaN replaced by -1e30; zeros of both signs are equal
///   the k experts of the largest b_e are chosen; of equal ones the lower id
///   w_e = a_e                          of a chosen expert; a NaN stays
///   w_e = a_e / n                      where renormalize; n is the sum of the chosen a_e in
///                                      ascending order of id, or 1 where that is not above 0
///   w_e = w_e * routed_scaling_factor
///
/// So every id is in [0, E) and no two of a token are equal, whatever the scores hold: experts of
/// NaN are chosen only where fewer than k others lie above -1e30.
///
/// Out come the chosen experts in ascending order of id or, where `sorted`, by descending b_e,
/// equal ones in ascending order of id. The set is the same.
///
/// Strides: unit along the last axis, rows any. No pointer needs more alignment than its element.
/// The outputs overlap nothing.
struct MoeRouteTopkArgs {
  ConstTensorView scores;   ///< [T, E] bf16 or f32, router logits
  ConstTensorView bias;     ///< [E] f32, correction: ranks the experts, does not weight them
  TensorView topk_weights;  ///< [T, topk] f32
  TensorView topk_ids;      ///< [T, topk] i32

  int topk = 16;                       ///< 1..64, at most E. K3: 16 of 896
  bool renormalize = true;             ///< weights of a token sum to routed_scaling_factor
  float routed_scaling_factor = 1.0F;  ///< finite; 1 is none. K3: 1
  bool sorted = false;                 ///< by rank instead of by id
};

/// Deterministic; bits depend on the backend alone. No workspace. CUDA: 896 experts with topk 16
/// have a kernel of their own, which agrees with the general one bit for bit.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void moe_route_topk(const MoeRouteTopkArgs& args, const ExecContext& ctx = {});
K3_API std::size_t moe_route_topk_workspace_size(const MoeRouteTopkArgs& args,
                                                 const ExecContext& ctx = {});

}  // namespace k3
