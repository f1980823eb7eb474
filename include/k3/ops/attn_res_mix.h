// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Block attention residuals: the input of a sublayer as a learned mixture of the finished blocks
/// and the running sum, and its norm, in one pass (Kimi K3 technical report, arXiv 2607.24653).
///
/// Per token t, with the candidate rows r_0 .. r_{n-1} = bank[t, 0 .. n-1], n = num_bank_rows, and
/// r_n = prefix[t]:
///
///   c     = score_norm_weight * score_proj           kept in fp32, or score_weight in its place
///   s_j   = (sum_h r_j[h] c[h]) * rsqrt(mean_h r_j[h]^2 + eps)
///   p     = softmax over j = 0 .. n of s_j
///   mixed = sum_j p_j r_j                            fp32, not rounded
///   out   = bf16( mixed * rsqrt(mean mixed^2 + eps) * out_norm_weight )
///   where write_prefix: bank[t, n] = prefix[t], bit for bit
///
/// One eps serves both norms. With n = 0 this is the RMS norm of prefix. Rows of bank past n are
/// neither read nor, but for the one that write_prefix names, written. A row of zeros scores 0
/// where eps > 0; a NaN or an infinity in a row makes all of its token NaN. Range: arithmetic is
/// fp32, so sums of squares must stay below 3e38.
///
/// c comes in one of two forms. The product of the two weights is exact in fp32; folded into one
/// bf16 tensor ahead of time it is rounded, which moves out by about 3e-3 of its size.
///
/// Strides: unit along the last axis, all others any. No tensor needs more alignment than its
/// element; on CUDA 16-byte aligned rows run on faster paths. out overlaps no other tensor. Where
/// write_prefix is set bank is written and overlaps none, either; else prefix may be a row of it.
/// On CUDA the weights count as constant (ExecContext::pdl). The CPU takes a workspace.
struct AttnResMixArgs {
  TensorView bank;                    ///< [T, NB, H] bf16, [T, 0, H] at least; NB >= n, with
                                      ///< write_prefix NB > n
  ConstTensorView prefix;             ///< [T, H] bf16; H >= 8, a multiple of 8. K3: 7168
  ConstTensorView score_norm_weight;  ///< [H] bf16
  ConstTensorView score_proj;         ///< [H] bf16
  ConstTensorView score_weight;       ///< [H] bf16; in place of the two above
  ConstTensorView out_norm_weight;    ///< [H] bf16
  TensorView out;                     ///< [T, H] bf16

  int num_bank_rows = 0;      ///< n, 0 .. 1023. K3: 0 .. 8
  float eps = 1e-5F;          ///< finite, >= 0. K3: 1e-5
  bool write_prefix = false;  ///< K3: at the first sublayer of each block of 12 layers
};

/// Deterministic; bits depend on the backend and the variant and, on CUDA's vectorised variant, on
/// whether there are more than 96 tokens, 128 with at most two bank rows; never on other tokens'
/// values.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void attn_res_mix(const AttnResMixArgs& args, const ExecContext& ctx = {});
K3_API std::size_t attn_res_mix_workspace_size(const AttnResMixArgs& args,
                                               const ExecContext& ctx = {});

}  // namespace k3
