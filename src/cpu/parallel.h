// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace k3::cpu {

/// Far above any machine, and few enough for OpenMP to start.
inline constexpr int kMaxThreads = 1024;

/// What OpenMP would use by itself.
inline int max_threads() {
  return std::clamp(std::min(omp_get_max_threads(), omp_get_thread_limit()), 1, kMaxThreads);
}

/// At most `threads`, and none with less to do than it costs to wake: a team that shares its cores
/// with others can wait milliseconds for its last member.
inline int useful_threads(int threads, double microseconds) {
  constexpr double kWorth = 20.0;  // microseconds a thread
  return static_cast<int>(std::clamp(microseconds / kWorth, 1.0, static_cast<double>(threads)));
}

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
