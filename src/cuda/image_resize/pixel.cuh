// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/bicubic.h"

namespace k3::cuda {

/// The pixel that a sum of weighted pixels makes; the sum began with kResizeHalf.
__device__ inline std::uint8_t resized_pixel(std::int32_t sum) {
  return static_cast<std::uint8_t>(min(max(sum >> kResizeFractionBits, 0), 255));
}

}  // namespace k3::cuda
