// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "k3/context.h"

namespace k3::harness {

/// A name for files and plots: the GPU, or the CPU's model and cores; "nvidia-h200".
std::string machine_name(Backend backend);

}  // namespace k3::harness
