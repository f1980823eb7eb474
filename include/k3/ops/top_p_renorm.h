// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Nucleus filtering of next-token probabilities (sampling and rejection in K3's speculative
/// decoding; Kimi K3 technical report, arXiv 2607.24653), of each row by itself:
///
///   mass(v) = sum of all p <= v
///   pivot   = the smallest p of the row with mass(p) >= 1 - top_p, else the largest p
///   out     = p / (sum of all p >= pivot)   where p >= pivot, else 0
///
/// That is what sorting upwards and adding up gives; all that are equal to the pivot stay.
///
/// Values are probabilities: NaN and values below 0 count as 0 and give 0, values above 1 as 1. The
/// row need not sum to 1. Masses are sums of whole multiples of 2^-q, each value rounded down, with
/// q = 45 for a V of 163840 (63 less the bits of V, at most 46): no order of additions changes
/// them. The bits are the same on every backend. A row of zeros gives zeros.
///
/// Strides: unit along the last axis, rows any. No tensor needs more alignment than its element; on
/// CUDA 16-byte aligned rows with V a multiple of 4 run on the vector path, others on a slower one.
/// out may be probs itself (same memory and strides) and overlaps no other tensor.
///
/// top_ps in host memory is checked; in device memory NaN and values above 1 count as 1, values
/// below 0 as 0, where the largest values of the row are left.
struct TopPRenormArgs {
  ConstTensorView probs;   ///< [B, V] f32
  ConstTensorView top_ps;  ///< optional [B] f32, each in (0, 1]: in place of top_p
  TensorView out;          ///< [B, V] f32

  std::optional<float>
      top_p;  ///< in (0, 1], of every row; exactly one of top_p and top_ps is given
};

/// Deterministic. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void top_p_renorm(const TopPRenormArgs& args, const ExecContext& ctx = {});
K3_API std::size_t top_p_renorm_workspace_size(const TopPRenormArgs& args,
                                               const ExecContext& ctx = {});

}  // namespace k3
