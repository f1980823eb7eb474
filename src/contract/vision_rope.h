// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "k3/ops/vision_rope.h"

namespace k3 {

/// [T, H, D] with strides in elements; the last one is 1.
template <class Void>
struct RopeHeads {
  Void* data = nullptr;
  std::int64_t stride_t = 0;
  std::int64_t stride_h = 0;
};

/// A checked call: what every backend receives. The tokens are one axis.
struct VisionRopeProblem {
  std::int64_t T = 0;
  int H = 0;
  int D = 0;
  DType dtype = DType::kNone;  ///< of all but freqs
  RopeHeads<const void> q;
  RopeHeads<const void> k;
  const float* freqs = nullptr;  ///< [T, D], pairs (c, s)
  std::int64_t freqs_stride = 0;
  RopeHeads<void> q_out;
  RopeHeads<void> k_out;
  bool in_place = false;  ///< some output is its input
  Device device;

  [[nodiscard]] bool empty() const { return T == 0 || H == 0 || D == 0; }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<VisionRopeArgs>> vision_rope_args();

/// @throws ContractError
VisionRopeProblem check(const VisionRopeArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
