// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/vision_rope.h"
#include "dispatch/kernel.h"

/// The CUDA variants of vision_rope. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// Four pairs of q and of k a thread.
void vision_rope_vec8(const VisionRopeProblem& problem, const Target& target);
const char* vision_rope_vec8_refusal(const VisionRopeProblem& problem, const Target& target);

/// One pair of each: any D, stride and base.
void vision_rope_pair(const VisionRopeProblem& problem, const Target& target);

}  // namespace k3::cuda
