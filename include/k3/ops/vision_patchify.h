// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Normalises images and cuts them into the patches of the vision tower, one row a patch, in
/// row-major order of the grid (Kimi K3 technical report, arXiv 2607.24653).
///
///   out[b, gy * gw + gx, c, py, px] = round(fma(pixel, scale[c], bias[c]))
///   pixel = image[b, c, gy * P + py, gx * P + px];  0 right of the image and below it
///
/// with P = patch_size and a grid of gh x gw = padded_height / P x padded_width / P patches. The
/// padding comes before the affine map: a padded pixel becomes bias[c], not 0. One fused
/// multiply-add in fp32, then one rounding to the dtype of out, so every backend gives the same
/// bits (of a NaN, only that it is one).
///
/// Any of these pairs of dtypes: f32 -> f32 or bf16, bf16 -> bf16, u8 -> f32 or bf16. Pixels that a
/// decoder leaves as u8 [H, W, 3] are the view [1, 3, H, W] with strides (3HW, 1, 3W, 3).
///
/// On CUDA the fast path takes an f32 or bf16 image whose rows are contiguous, with P and W even.
struct VisionPatchifyArgs {
  ConstTensorView image;  ///< [B, C, H, W] f32, bf16 or u8; any strides
  ConstTensorView scale;  ///< [1, C, 1, 1] f32, or bf16 where image is; dense. K3: 1 / (255 std)
  ConstTensorView bias;   ///< as scale, of its dtype. K3: -mean / std
  TensorView out;         ///< [B, gh * gw, C, P, P]; a patch is dense; must not overlap an input
  int patch_size = 14;    ///< at least 1; C * P * P fits 31 bits
  int padded_height = 0;  ///< at least H, a multiple of patch_size
  int padded_width = 0;   ///< at least W, a multiple of patch_size
};

/// Deterministic. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void vision_patchify(const VisionPatchifyArgs& args, const ExecContext& ctx = {});
K3_API std::size_t vision_patchify_workspace_size(const VisionPatchifyArgs& args,
                                                  const ExecContext& ctx = {});

}  // namespace k3
