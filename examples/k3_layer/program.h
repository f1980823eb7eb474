// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "examples/k3_layer/sizes.h"
#include "harness/driver.h"

namespace k3::layer {

/// Whose time an op's is.
enum class Part {
  kKda,       ///< the KDA attention sublayer, without its dense projections
  kExperts,   ///< front and tail of the mixture of experts
  kMla,       ///< what stands before and after the core of the MLA attention
  kResidual,  ///< the residual sums, which on several ranks ride on the reductions
  kDense,     ///< matrix products with a whole layer's weights
};
const char* name_of(Part part);

/// A call, and where its tensors are: handles of those of a run.
struct Op {
  Part part;
  std::string label;  ///< no other op of a step with the same driver has it
  const harness::Driver* driver;
  harness::Bundle bundle;
};
using Ops = std::vector<Op>;

/// A step in the order of its launches. Not `fused`: by the ops that a fused one is made of, where
/// it has such a chain.
Ops step_ops(const Request& request, const harness::Bundle& tensors, bool fused);

}  // namespace k3::layer
