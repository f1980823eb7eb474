// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/row_spans.h"

namespace k3::cpu {

/// Columns of a task: its fp32 sums stay in the L1.
inline constexpr std::int64_t kMoeTaskColumns = 4096;

/// How the sums over `topk` rows of each token are shared out.
inline RowSpans moe_row_spans(int topk) {
  return {.task_outputs = kMoeTaskColumns, .output_time = 1.2e-4 * (topk + 1)};
}

}  // namespace k3::cpu
