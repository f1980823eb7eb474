// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/parallel.h"

namespace k3::cpu {

/// Calls body(row, h_begin, h_end) over runs of the H heads of every row. Tasks of several heads
/// keep a prefetch going from one head to the next; enough tasks per thread keep the threads evenly
/// loaded. `head_time`: microseconds of one thread for one head, roughly.
template <class Body>
void for_heads(std::int64_t num_rows, int H, double head_time, int max_threads, const Body& body) {
  constexpr std::int64_t kTasksPerThread = 8;
  const std::int64_t heads = num_rows * H;
  const int threads = useful_threads(max_threads, head_time * static_cast<double>(heads));
  const auto per_task =
      static_cast<int>(std::clamp<std::int64_t>(heads / (kTasksPerThread * threads), 1, H));
  const int tasks_per_row = (H + per_task - 1) / per_task;
  parallel_for(num_rows * tasks_per_row, threads, [&](std::int64_t task, int /*thread*/) {
    const auto h = static_cast<int>(task % tasks_per_row) * per_task;
    body(task / tasks_per_row, h, std::min(h + per_task, H));
  });
}

}  // namespace k3::cpu
