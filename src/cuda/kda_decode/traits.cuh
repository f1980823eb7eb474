// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "contract/kda_fused_decode.h"
#include "cuda/kda/step.cuh"

namespace k3::cuda {

/// How a head is cut. docs/kda_decode.md has what each was measured at.
struct DecodeShape {
  int warps;               ///< of a CTA, at least 4
  int batch;               ///< rows that a warp takes at once: 4 or 8
  int batches = 1;         ///< that a warp takes one after the other
  int ahead = 1;           ///< batches on their way from memory at once
  bool streaming = false;  ///< the state leaves the L2 first
  /// Packed form, few heads: each warp makes q, k and decay for itself, so that a CTA needs no
  /// barrier, and the next grid is let in at once.
  bool own_vectors = false;
};

/// What is asked for before the previous grid has ended.
enum class DecodeEarly : std::uint8_t {
  kNothing,
  kVectors,  ///< weights, vectors, windows
  kAll,      ///< these and the state
};

/// One specialisation of the decode kernel.
/// @tparam Problem_  KdaFusedDecodeProblem or KdaPackedDecodeProblem
/// @tparam StateT_   float or bf16
/// @tparam kShape
/// @tparam kVector_  16-byte accesses (8 for bf16); else one an element, for any alignment
template <class Problem_, class StateT_, DecodeShape kShape, bool kVector_>
struct DecodeTraits {
  using Problem = Problem_;
  using StateT = StateT_;
  using Access = QuadAccess<kVector_>;
  using StateAccess = QuadAccess<kVector_, kShape.streaming>;
  static constexpr int kWarps = kShape.warps;
  static constexpr int kNumThreads = 32 * kWarps;
  static constexpr int kBatch = kShape.batch;
  static constexpr int kBatches = kShape.batches;
  static constexpr int kAhead = kShape.ahead;
  static constexpr int kRowsOfWarp = kBatch * kBatches;
  static constexpr int kRows = kRowsOfWarp * kWarps;          ///< of a CTA
  static constexpr int kClusterSize = kHeadDim / kRows;       ///< CTAs of a head
  static constexpr int kNumSquares = kHeadDim / kRowsOfWarp;  ///< partial sums of o^2, one a warp
  static constexpr bool kVector = kVector_;
  static constexpr bool kFused = std::is_same_v<Problem, KdaFusedDecodeProblem>;
  static constexpr bool kHasCluster = kFused && kClusterSize > 1;
  static constexpr bool kOwnVectors = kShape.own_vectors;
  static_assert(kWarps >= 4 && kHeadDim % kRows == 0 && kClusterSize <= 8);
  static_assert(kBatch % 4 == 0, "a batch is made of whole T128 groups of o");
  static_assert(kAhead <= kBatches && (kRowsOfWarp & (kRowsOfWarp - 1)) == 0);
  static_assert(!(kFused && kOwnVectors));
};

}  // namespace k3::cuda
