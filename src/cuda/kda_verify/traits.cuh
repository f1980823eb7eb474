// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/kda/chain.cuh"

namespace k3::cuda {

/// How a head is cut.
/// @tparam kWarps_    of a CTA: all make tokens, the first of them run the chain
/// @tparam kRows_     of the state, in a CTA
/// @tparam kBatches_  of four rows, that a warp holds in registers
/// @tparam kMinCtas_  that an SM must have registers for; with one there are enough to ask for the
///                    rows before the tokens' arithmetic
template <int kWarps_, int kRows_, int kBatches_, int kMinCtas_>
struct VerifyShape {
  static constexpr int kMinCtas = kMinCtas_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kRows = kRows_;
  static constexpr int kBatches = kBatches_;
};

/// One specialisation of the verify kernel.
/// @tparam StateT_   float or bf16
/// @tparam Shape_    a VerifyShape
/// @tparam kVector_  16-byte accesses (8 for bf16); else one an element, for any alignment
template <class StateT_, class Shape_, bool kVector_>
struct VerifyTraits {
  using StateT = StateT_;
  using Access = QuadAccess<kVector_>;
  using Layout = ChainLayout<8, Shape_::kBatches>;
  static constexpr bool kVector = kVector_;
  static constexpr int kMinCtas = Shape_::kMinCtas;
  static constexpr bool kLoadsEarly = kMinCtas == 1;
  static constexpr int kWarps = Shape_::kWarps;
  static constexpr int kNumThreads = 32 * kWarps;
  static constexpr int kRows = Shape_::kRows;
  static constexpr int kChainWarps = kRows / Layout::kWarpRows;
  static constexpr int kClusterSize = kHeadDim / kRows;  ///< CTAs of a head
  static_assert(kChainWarps <= kWarps && kClusterSize <= 8);
};

}  // namespace k3::cuda
