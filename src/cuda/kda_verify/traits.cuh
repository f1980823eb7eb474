// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/kda/chain.cuh"

namespace k3::cuda {

/// How a head is cut.
/// @tparam kRows_            of the state, in a CTA
/// @tparam kBatches_         of four rows, that a chain warp holds in registers
/// @tparam kTokenGroups_     of four warps that make tokens, in turns
/// @tparam kPersistent_      two CTAs an SM, each of which serves many heads and makes the next
///                           one's tokens meanwhile; else a CTA serves one
/// @tparam kChainRegisters_  that a chain thread takes from those that make tokens; 0: none
/// @tparam kTokenRegisters_  that one of these keeps
template <int kRows_, int kBatches_, int kTokenGroups_, bool kPersistent_, int kChainRegisters_ = 0,
          int kTokenRegisters_ = 0>
struct VerifyShape {
  static constexpr int kRows = kRows_;
  static constexpr int kBatches = kBatches_;
  static constexpr int kTokenGroups = kTokenGroups_;
  static constexpr bool kPersistent = kPersistent_;
  static constexpr int kChainRegisters = kChainRegisters_;
  static constexpr int kTokenRegisters = kTokenRegisters_;
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
  static constexpr bool kPersistent = Shape_::kPersistent;
  static constexpr int kRows = Shape_::kRows;
  static constexpr int kClusterSize = kHeadDim / kRows;  ///< CTAs of a head
  static constexpr int kChainWarps = kRows / Layout::kWarpRows;
  static constexpr int kTokenGroups = Shape_::kTokenGroups;
  static constexpr int kNumThreads = 32 * (kChainWarps + 4 * kTokenGroups);
  static constexpr int kMinCtas = kPersistent ? 2 : 1;
  static constexpr int kStages = kPersistent ? 2 : 1;  ///< heads whose tokens are in shared memory
  static constexpr int kChainRegisters = Shape_::kChainRegisters;
  static constexpr int kTokenRegisters = Shape_::kTokenRegisters;
  static_assert(kClusterSize <= 8 && kChainWarps % 4 == 0);
};

}  // namespace k3::cuda
