// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace k3::cuda {

template <int kVec>
struct SituAndMulVector;
template <>
struct SituAndMulVector<8> {
  using Type = uint4;
};
template <>
struct SituAndMulVector<4> {
  using Type = uint2;
};
template <>
struct SituAndMulVector<1> {
  using Type = unsigned short;
};

/// One specialisation of the kernel.
/// @tparam kVec_         elements per access: 8 (16 bytes), 4 or 1
/// @tparam kBetaIsFour_  beta is 4, as in K3: the gate then needs two special functions, not three
/// @tparam kHasSoftUp_   linear_beta is given
template <int kVec_, bool kBetaIsFour_, bool kHasSoftUp_>
struct SituAndMulTraits {
  static constexpr int kVec = kVec_;
  static constexpr bool kBetaIsFour = kBetaIsFour_;
  static constexpr bool kHasSoftUp = kHasSoftUp_;
  static constexpr int kNumThreads = 256;
  using Vector = typename SituAndMulVector<kVec>::Type;
};

/// Up to here 8-byte accesses are faster: twice the warps, half the arithmetic in a row. Past it,
/// 16-byte accesses keep more bytes in flight (docs/situ_and_mul_cuda.md).
inline constexpr long long kSituAndMulSmallOutputs = 1LL << 21;

}  // namespace k3::cuda
