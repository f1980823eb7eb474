// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "contract/kda_fused_decode.h"
#include "cuda/kda/step.cuh"

namespace k3::cuda {

/// How a head is cut. docs/kda_decode.md has what each was measured at.
/// @tparam kWarps_      of a CTA, at least 4
/// @tparam kBatches_    of four rows, that a warp takes one after the other
/// @tparam kAhead_      batches on their way from memory at once
/// @tparam kStreaming_  the state leaves the L2 first
template <int kWarps_, int kBatches_, int kAhead_, bool kStreaming_>
struct DecodeShape {
  static constexpr int kWarps = kWarps_;
  static constexpr int kBatches = kBatches_;
  static constexpr int kAhead = kAhead_;
  static constexpr bool kStreaming = kStreaming_;
};

/// One specialisation of the decode kernel.
/// @tparam Problem_  KdaFusedDecodeProblem or KdaPackedDecodeProblem
/// @tparam StateT_   float or bf16
/// @tparam Shape_    a DecodeShape
/// @tparam kVector_  16-byte accesses (8 for bf16); else one an element, for any alignment
template <class Problem_, class StateT_, class Shape_, bool kVector_>
struct DecodeTraits {
  using Problem = Problem_;
  using StateT = StateT_;
  using Access = QuadAccess<kVector_>;
  using StateAccess = QuadAccess<kVector_, Shape_::kStreaming>;
  static constexpr int kWarps = Shape_::kWarps;
  static constexpr int kNumThreads = 32 * kWarps;
  static constexpr int kBatch = 4;  ///< rows: one T128 group of o
  static constexpr int kBatches = Shape_::kBatches;
  static constexpr int kAhead = Shape_::kAhead;
  static constexpr int kRows = kBatch * kBatches * kWarps;  ///< of a CTA
  static constexpr int kClusterSize = kHeadDim / kRows;     ///< CTAs of a head
  static constexpr int kNumSquares = 32 / kBatches;         ///< partial sums of o^2, one a warp
  static constexpr bool kVector = kVector_;
  static constexpr bool kFused = std::is_same_v<Problem, KdaFusedDecodeProblem>;
  static constexpr bool kHasCluster = kFused && kClusterSize > 1;
  static_assert(kWarps >= 4 && kHeadDim % kRows == 0 && kClusterSize <= 8);
  static_assert(kAhead <= kBatches && (kBatches & (kBatches - 1)) == 0);
};

}  // namespace k3::cuda
