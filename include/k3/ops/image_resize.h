// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Resizes 8-bit images by the bicubic filter with antialiasing, bit for bit as Pillow's
/// `Image.resize(size, Image.Resampling.BICUBIC)` does: the resize of the model's image processor
/// (Kimi K3 technical report, arXiv 2607.24653, names the filter; the roundings are Pillow's).
///
///   out pixel i along an axis of n pixels that becomes one of m:
///     scale = n / m, width = max(scale, 1), center = (i + 0.5) scale
///     taps j from int(center - 2 width + 0.5) to int(center + 2 width + 0.5), within the image
///     w[j] = f((j - center + 0.5) / width) / (their sum), in double, then to 22 fractional bits
///     out = clamp((2^21 + sum w[j] pixel[j]) >> 22, 0, 255)
///   f(x) = 1.5 |x|^3 - 2.5 x^2 + 1 for |x| < 1,  -0.5 |x|^3 + 2.5 x^2 - 4 |x| + 2 below 2,  0
///   beyond
///
/// Rows first, rounded to 8 bits, then columns. An axis that keeps its size keeps its values. From
/// its release 13 on, Pillow takes the columns first where H - Ho > max(0, 2 (W - Wo)): exchange
/// the last two axes of both views to get that.
///
/// Takes a workspace (image_resize_workspace_size). Channels are independent; colours under an
/// alpha channel are to be composed before.
struct ImageResizeArgs {
  ConstTensorView image;  ///< [B, C, H, W] u8; any strides (pixels [H, W, C] are a view)
  TensorView out;         ///< [B, C, Ho, Wo] u8; any strides; must not overlap image
};

/// Sides are at most 2^24. An output without pixels is fine, pixels out of none are not.
/// Deterministic; every backend gives the same bits.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void image_resize(const ImageResizeArgs& args, const ExecContext& ctx = {});
K3_API std::size_t image_resize_workspace_size(const ImageResizeArgs& args,
                                               const ExecContext& ctx = {});

}  // namespace k3
