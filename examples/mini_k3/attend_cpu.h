// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "examples/mini_k3/machine.h"

namespace k3::mini {

/// Attention of one head of one row, on this thread.
void attend_head(const AttentionArgs& args, std::int64_t row, std::int64_t head);

}  // namespace k3::mini
