// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "contract/kda.h"

namespace k3 {

struct Target;

namespace dispatch {

/// True under K3_DEBUG_CHECKS=1.
bool debug_checks();

/// Points `list`, which lies in memory of target.device, at a copy in `storage`. Waits for the
/// stream. False, with a line under K3_VERBOSE=1, while the stream is being captured.
/// @throws CudaError
bool copy_to_host(const char* op, IndexList& list, const Target& target,
                  std::vector<std::int32_t>& storage);

}  // namespace dispatch

/// The check that a call does not pay for: what its index lists hold, on whatever device they lie,
/// duplicates included. @throws ContractError
template <class Problem>
void debug_check_values(const char* op, Problem problem, const Target& target) {
  std::vector<std::vector<std::int32_t>> storage;
  for (IndexList* list : index_lists(problem)) {
    if (!list->defined() || problem.device.kind == DeviceKind::kCpu) continue;
    if (!dispatch::copy_to_host(op, *list, target, storage.emplace_back())) return;
  }
  check_values(Contract(op, Purpose::kRun), problem, ValueChecks::kRangesAndDuplicates);
}

}  // namespace k3
