// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace k3::cpu {

inline int max_threads() { return omp_get_max_threads(); }

/// Calls body(task, thread) for every task in [0, num_tasks), on at most `threads` threads.
/// Each task runs once, on one thread, so results do not depend on the split; tasks are handed out
/// one by one, because sequences differ in length. This is the only place with OpenMP in it.
template <class Body>
void parallel_for(std::int64_t num_tasks, int threads, const Body& body) {
  if (threads <= 1 || num_tasks <= 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task) body(task, 0);
    return;
  }
  const auto team = static_cast<int>(std::min<std::int64_t>(threads, num_tasks));
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (std::int64_t task = 0; task < num_tasks; ++task) body(task, omp_get_thread_num());
}

}  // namespace k3::cpu
