// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/vision_patchify.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void vision_patchify(const VisionPatchifyProblem& problem, const Target& target);

}  // namespace k3::cpu
