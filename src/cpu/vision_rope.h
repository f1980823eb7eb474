// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/vision_rope.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void vision_rope(const VisionRopeProblem& problem, const Target& target);

}  // namespace k3::cpu
