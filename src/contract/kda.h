// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "k3/ops/kda_types.h"

namespace k3 {

inline constexpr int kKdaHeadDim = 128;  ///< of keys and of values
inline constexpr int kKdaConvWidth = 4;
inline constexpr float kKdaL2Eps = 1e-6F;  ///< added to the sum of squares, inside the root

}  // namespace k3
