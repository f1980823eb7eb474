// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "k3/tensor.h"
#include "oracle/round.h"

namespace k3::oracle {

/// One element of memory that holds f32, bf16 or f16.
inline double load(const void* from, DType dtype, std::int64_t at) {
  if (dtype == DType::kF32) return static_cast<const float*>(from)[at];
  if (dtype == DType::kF16) return to_float(static_cast<const f16*>(from)[at]);
  return to_float(static_cast<const bf16*>(from)[at]);
}

inline void store(void* to, DType dtype, std::int64_t at, double x) {
  if (dtype == DType::kF32)
    static_cast<float*>(to)[at] = static_cast<float>(x);
  else if (dtype == DType::kF16)
    static_cast<f16*>(to)[at] = round_f16(x);
  else
    static_cast<bf16*>(to)[at] = round_bf16(x);
}

}  // namespace k3::oracle
