// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace k3::cuda {

/// n / d for n < 2^31 and 1 <= d < 2^31: one wide multiplication and a shift.
class Divider {
 public:
  Divider() = default;
  explicit Divider(std::uint32_t d) {
    while ((std::uint64_t{1} << (shift_ - 31)) < d) ++shift_;
    multiplier_ = static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + d - 1) / d);
  }
  __device__ std::uint32_t quotient(std::uint32_t n) const {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * multiplier_) >> shift_);
  }

 private:
  // With s = ceil(log2 d), the multiplier is ceil(2^(31+s) / d): too large by less than d <= 2^s,
  // so n times the excess stays below 2^(31+s) and never reaches the next quotient.
  unsigned shift_ = 31;
  std::uint32_t multiplier_ = 0;
};

}  // namespace k3::cuda
