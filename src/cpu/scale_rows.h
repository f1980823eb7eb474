// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/per_token_group_quant.h"
#include "core/group_quant.h"

namespace k3::cpu {

/// The scales of some groups of a row, one behind the other.
struct GroupScales {
  static constexpr std::int64_t kMost = 32;
  float stored[kMost];
  float multiplier[kMost];
  std::int32_t byte[kMost];

  [[nodiscard]] GroupScale operator[](std::int64_t i) const {
    return {stored[i], multiplier[i], static_cast<std::uint8_t>(byte[i])};
  }
};

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

/// The same of groups [first, first + count).
inline void store_scales(const ScaleRows& to, std::int64_t row, std::int64_t first,
                         std::int64_t count, const GroupScales& scales) {
  const bool last = first + count == to.num_groups;
  if (to.packed && to.group_stride == 1) {  // the bytes of a row, one behind the other
    auto* const bytes = static_cast<std::uint8_t*>(to.data) + 4 * row * to.row_stride + first;
    for (std::int64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(scales.byte[i]);
    if (last)
      for (std::int64_t i = count; (first + i) % 4 != 0; ++i) bytes[i] = 0;
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) store_scale(to, row, first + i, scales[i]);
}

}  // namespace k3::cpu
