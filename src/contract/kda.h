// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "contract/checks.h"
#include "k3/ops/kda_types.h"
#include "k3/tensor.h"

namespace k3 {

inline constexpr int kKdaHeadDim = 128;  ///< of keys and of values
inline constexpr int kKdaConvWidth = 4;
inline constexpr float kKdaL2Eps = 1e-6F;  ///< added to the sum of squares, inside the root

/// Integers that choose slots, rows or counts: one per request, in the memory of the call's device.
struct IndexList {
  const std::int32_t* data = nullptr;  ///< null: absent
  std::int64_t stride = 1;             ///< elements
  std::int64_t size = 0;

  IndexList() = default;
  explicit IndexList(const ConstTensorView& view);
  [[nodiscard]] bool defined() const { return data != nullptr; }
  /// Only where the memory is the host's.
  std::int32_t operator[](std::int64_t n) const { return data[n * stride]; }
};

/// How far values in memory are checked. Two requests with one slot are a race that costs too much
/// to look for in every call.
enum class ValueChecks { kRanges, kRangesAndDuplicates };

/// Each is at most null_index or a row below num_rows; host memory. `what` says what a row is.
void check_indices(const Contract& contract, const char* argument, const IndexList& indices,
                   int null_index, std::int64_t num_rows, const char* what, ValueChecks checks);

}  // namespace k3
