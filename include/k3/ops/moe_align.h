// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Sorts routed slots by expert, each expert's run padded to whole blocks: the order in which a
/// grouped expert GEMM of Kimi K3 (technical report, arXiv 2607.24653) visits them. Slot t * topk +
/// j is the j-th expert of token t; N = T * topk.
///
///   sorted_ids   the slots of the lowest expert in ascending order, N up to the next multiple of
///                block_size, the slots of the next expert, ...; N in all that is left
///   expert_ids   the expert of each block of sorted_ids; -1 in all that is left
///   num_post     the padded total: what is filled of sorted_ids
///
/// An id outside [0, num_experts) drops its slot: it stands nowhere (experts of other ranks). In
/// host memory only negative ones may do so, others are an error. With one token (T = 1) each slot
/// has a block of its own, even where an expert stands twice; equal ones go by slot.
///
/// topk_ids is dense, the outputs have unit stride. No pointer needs more alignment than its
/// element. The outputs overlap nothing.
struct MoeAlignArgs {
  ConstTensorView topk_ids;  ///< [T, topk] i32
  TensorView sorted_ids;     ///< [S] i32, S >= moe_align_capacity(...)
  TensorView expert_ids;     ///< [B] i32, B >= moe_align_capacity(...) / block_size
  TensorView num_post;       ///< [1] i32

  int num_experts = 896;  ///< 1..8192. K3: 896
  int block_size = 64;    ///< >= 1
};

/// Elements of sorted_ids that hold every routing of so many slots: a multiple of block_size, or
/// the largest integer where that leaves 63 bits; 0 where an argument is not positive.
K3_API std::int64_t moe_align_capacity(std::int64_t num_tokens, std::int64_t topk, int num_experts,
                                       int block_size);

/// Deterministic, and the same on every backend. The workspace holds counts.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void moe_align(const MoeAlignArgs& args, const ExecContext& ctx = {});
K3_API std::size_t moe_align_workspace_size(const MoeAlignArgs& args, const ExecContext& ctx = {});

}  // namespace k3
