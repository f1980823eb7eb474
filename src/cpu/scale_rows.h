// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/per_token_group_quant.h"
#include "core/group_quant.h"

namespace k3::cpu {

/// Writes the scale of group g of a row, by itself: other groups of its word may be another
/// thread's. The last group of a row also fills its word with zeros.
inline void store_scale(const ScaleRows& to, std::int64_t row, std::int64_t g,
                        const GroupScale& scale) {
  if (!to.packed) {
    static_cast<float*>(to.data)[row * to.row_stride + g * to.group_stride] = scale.stored;
    return;
  }
  auto* const bytes =
      static_cast<std::uint8_t*>(to.data) + 4 * (row * to.row_stride + g / 4 * to.group_stride);
  bytes[g % 4] = scale.byte;
  if (g + 1 == to.num_groups)
    for (std::int64_t i = g % 4 + 1; i < 4; ++i) bytes[i] = 0;
}

}  // namespace k3::cpu
