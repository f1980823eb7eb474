// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/parallel.h"

namespace k3::cpu {

/// How the outputs of [rows, D] are shared out: elements, or groups of them.
struct RowSpans {
  std::int64_t task_outputs;  ///< of a task: several short rows, or a part of a long one
  double output_time;         ///< microseconds of one thread, roughly
};

/// Calls body(row, first column, count) for pieces that cover every row once; `threads` at most.
template <class Body>
void for_each_row_span(std::int64_t num_rows, std::int64_t D, int threads, const RowSpans& shares,
                       const Body& body) {
  if (num_rows == 0 || D == 0) return;
  const std::int64_t span = std::min(D, shares.task_outputs);
  const std::int64_t spans_per_row = (D + span - 1) / span;
  const std::int64_t spans_per_task = shares.task_outputs / span;
  const std::int64_t num_spans = num_rows * spans_per_row;
  const std::int64_t num_tasks = (num_spans + spans_per_task - 1) / spans_per_task;
  const int team = useful_threads(
      threads, shares.output_time * static_cast<double>(num_rows) * static_cast<double>(D));
  parallel_for(num_tasks, team, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t end = std::min((task + 1) * spans_per_task, num_spans);
    for (std::int64_t i = task * spans_per_task; i < end; ++i) {
      const std::int64_t begin = i % spans_per_row * span;
      body(i / spans_per_row, begin, std::min(span, D - begin));
    }
  });
}

/// From here on outputs go past the caches: they would not stay there, and a store through a cache
/// reads its line first.
inline constexpr std::int64_t kStreamOutputs = std::int64_t{1} << 22;

inline bool stream_outputs(std::int64_t num_rows, std::int64_t D) {
  return num_rows >= (kStreamOutputs + D - 1) / D;
}

/// Of `count` elements, those ahead of the first at a multiple of `lanes` elements' bytes, where
/// stores past the caches begin.
template <class T>
std::int64_t unaligned_head(const T* to, std::int64_t count, std::int64_t lanes) {
  const auto past =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / sizeof(T)) % lanes;
  return std::min(count, (lanes - past) % lanes);
}

}  // namespace k3::cpu
