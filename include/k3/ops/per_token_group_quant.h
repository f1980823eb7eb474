// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Quantises each row in groups of neighbouring values, one scale a group: what the FP8 products of
/// a K3 layer read (Kimi K3 technical report, arXiv 2607.24653).
///
///   amax = max(1e-10, max |x|) over the group, at most the largest finite fp32; NaN is ignored
///   r    = amax * (1 / 448)
///
///   fp32 scales    s = r             q = e4m3( min(x * (448 / amax), 448) )
///   UE8M0 scales   s = 2^(b - 127),  the least power of two that is >= r
///                                    q = e4m3( min(x / s, 448) )
///   i8 codes       s = amax * (1 / 127),  q = trunc( clamp(x * (127 / amax), -128, 127) )
///
/// Every step is rounded to fp32 as written; e4m3 rounds to nearest even and saturates. NaN and
/// +inf give the largest code, -inf the smallest, so no fp8 NaN is ever written. 448 / amax is not
/// the reciprocal of r: they may be an ulp apart.
///
/// output_s in fp32 has any strides: row-major, or column-major with strides {1, T}. In i32 each
/// word packs the exponent bytes b of four neighbouring groups, the lowest group in the lowest
/// byte; a last word that is not full is filled with zeros. Row-major and column-major words again
/// differ in the strides alone.
///
/// Pointers need no more alignment than their elements; on CUDA rows of input and
/// output_q on 16 bytes and group sizes of a power of two run on the vector path.
struct PerTokenGroupQuantArgs {
  ConstTensorView input;     ///< [T, D] bf16 or f32; last stride 1
  TensorView output_q;       ///< [T, D] e4m3 or i8; last stride 1; overlaps nothing
  TensorView output_s;       ///< [T, G] f32 or [T, ceil(G/4)] i32, G = D / group_size; any strides
  int group_size = 128;      ///< a multiple of 16 in 16..256 that divides D. K3: 32 and 128
  bool scale_ue8m0 = false;  ///< needed by i32 scales; e4m3 codes only
};

/// Deterministic, and the same bits on every backend. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void per_token_group_quant(const PerTokenGroupQuantArgs& args, const ExecContext& ctx = {});
K3_API std::size_t per_token_group_quant_workspace_size(const PerTokenGroupQuantArgs& args,
                                                        const ExecContext& ctx = {});

}  // namespace k3
