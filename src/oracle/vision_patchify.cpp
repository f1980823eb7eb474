// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "contract/vision_patchify.h"
#include "core/bf16.h"
#include "oracle/element.h"
#include "oracle/oracle.h"

namespace k3::oracle {

/// The contract fixes every rounding, so this one works in fp32, as it says.
void vision_patchify(const VisionPatchifyArgs& args) {
  const VisionPatchifyProblem p = check(args);
  const auto pixel_at = [&](std::int64_t b, int c, std::int64_t y, std::int64_t x) -> double {
    if (y >= p.H || x >= p.W) return 0.0;
    const std::int64_t at =
        b * p.image_stride_b + c * p.image_stride_c + y * p.image_stride_y + x * p.image_stride_x;
    return p.image_dtype == DType::kU8 ? static_cast<const std::uint8_t*>(p.image)[at]
                                       : load(p.image, p.image_dtype, at);
  };
  for (std::int64_t b = 0; b < p.B; ++b)
    for (std::int64_t gy = 0; gy < p.grid_height; ++gy)
      for (std::int64_t gx = 0; gx < p.grid_width; ++gx)
        for (int c = 0; c < p.C; ++c) {
          const auto scale = static_cast<float>(load(p.scale, p.affine_dtype, c));
          const auto bias = static_cast<float>(load(p.bias, p.affine_dtype, c));
          const std::int64_t patch =
              b * p.out_stride_b + (gy * p.grid_width + gx) * p.out_stride_patch;
          for (std::int64_t py = 0; py < p.P; ++py)
            for (std::int64_t px = 0; px < p.P; ++px) {
              const double pixel = pixel_at(b, c, gy * p.P + py, gx * p.P + px);
              const float y = std::fma(static_cast<float>(pixel), scale, bias);
              store(p.out, p.out_dtype, patch + (std::int64_t{c} * p.P + py) * p.P + px, y);
            }
        }
}

}  // namespace k3::oracle
