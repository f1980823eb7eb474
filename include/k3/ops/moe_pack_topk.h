// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Chosen experts and their weights in one word each, as grouped expert kernels of Kimi K3
/// (technical report, arXiv 2607.24653) read them:
///
///   packed = (topk_ids << 16) | bits of bf16(topk_weights)
///
/// bf16 rounds to nearest even; every NaN gives 0x7FC0. Of an id the low 16 bits are kept: -32768
/// to 65535 can be told from the word, negative ones as such only by who knows that there are fewer
/// than 32768 experts.
///
/// Strides: unit along the last axis, rows any. No pointer needs more alignment than its element.
/// packed overlaps nothing.
struct MoePackTopkArgs {
  ConstTensorView topk_ids;      ///< [T, topk] or [N], i32 or i64
  ConstTensorView topk_weights;  ///< f32; as topk_ids
  TensorView packed;             ///< i32; as topk_ids
};

/// Deterministic, and the same bits on every backend. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void moe_pack_topk(const MoePackTopkArgs& args, const ExecContext& ctx = {});
K3_API std::size_t moe_pack_topk_workspace_size(const MoePackTopkArgs& args,
                                                const ExecContext& ctx = {});

}  // namespace k3
