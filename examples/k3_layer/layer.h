// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/k3_layer/runner.h"
#include "examples/k3_layer/tensors.h"
#include "harness/limits.h"

/// `k3 layer`: runs the two layers and says what each op costs.
namespace k3::layer {

/// What one op takes in a step.
struct OpBill {
  const Op* op;
  harness::Timing timing;
  harness::Cost cost;
  int launches = 0;  ///< CPU: calls
};

/// Ops together.
struct SumBill {
  std::string name;
  double sum_us = 0;      ///< of the ops' times
  harness::Timing chain;  ///< measured one behind the other; the floor is the sum of the ops' own
  harness::Cost cost;
  int launches = 0;
};

/// A run of all steps, and its bill.
struct Bill {
  Ops fused;
  Ops unfused;
  std::vector<OpBill> ops;          ///< of `fused`
  std::vector<OpBill> unfused_ops;  ///< of those that `unfused` alone has
  std::vector<SumBill> sums;
  harness::Ceilings ceilings;
  double out_rms = 0;          ///< of the last step's `out`
  std::uint64_t out_hash = 0;  ///< of its bytes
};

/// @throws std::bad_alloc where the tensors do not fit
Bill run(const Request& request, harness::RunOn on, int threads);

/// Bytes that a run needs, and what the machine has for them.
struct Memory {
  double needed = 0;
  double free = 0;
};
/// The scarcer of the machine's memories.
Memory memory_of(const Request& request, harness::RunOn on);

}  // namespace k3::layer
