// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

namespace k3::cuda {

/// One specialisation of the kernel.
/// @tparam kVec_          elements per access: 8 (16 bytes) or 1
/// @tparam kBetaIsFour_   beta is 4, as in K3: the gate then needs two special-function calls, not
/// three
/// @tparam kHasSoftUp_    linear_beta is given
template <int kVec_, bool kBetaIsFour_, bool kHasSoftUp_>
struct SituAndMulTraits {
  static_assert(kVec_ == 8 || kVec_ == 1);
  static constexpr int kVec = kVec_;
  static constexpr bool kBetaIsFour = kBetaIsFour_;
  static constexpr bool kHasSoftUp = kHasSoftUp_;
  static constexpr int kNumThreads = 256;
  using Vector = std::conditional_t<kVec == 8, uint4, unsigned short>;
};

}  // namespace k3::cuda
