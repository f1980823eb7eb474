// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "contract/integers.h"
#include "dispatch/debug_checks.h"

namespace k3 {

namespace dispatch {

/// Points `list`, which lies in memory of target.device, at a copy in `storage`, of 64 bits each.
/// Waits for the stream. False, with a line under K3_VERBOSE=1, while the stream is being captured.
/// @throws CudaError
bool copy_to_host(const char* op, IntegerList& list, const Target& target,
                  std::vector<std::int64_t>& storage);

}  // namespace dispatch

template <class Problem>
concept HasIntegerLists = requires(Problem p) {
  { index_lists(p).front() } -> std::same_as<IntegerList*&>;
};

/// As the function of debug_checks.h, for problems whose lists hold 32 or 64 bits.
/// @throws ContractError
template <HasIntegerLists Problem>
void debug_check_values(const char* op, Problem problem, const Target& target) {
  std::vector<std::vector<std::int64_t>> storage;
  for (IntegerList* list : index_lists(problem)) {
    if (!list->defined() || problem.device.kind == DeviceKind::kCpu) continue;
    if (!dispatch::copy_to_host(op, *list, target, storage.emplace_back())) return;
  }
  check_values(Contract(op, Purpose::kRun), problem, ValueChecks::kRangesAndDuplicates);
}

}  // namespace k3
