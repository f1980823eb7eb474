// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/vision_patchify.h"
#include "dispatch/kernel.h"

/// The CUDA variants of vision_patchify. Each runs on `target.device` in `target.stream` and
/// returns after the launch. @throws CudaError
namespace k3::cuda {

/// Two pixels a load, four elements a store.
void vision_patchify_pairs(const VisionPatchifyProblem& problem, const Target& target);
const char* vision_patchify_pairs_refusal(const VisionPatchifyProblem& problem,
                                          const Target& target);

/// One pixel a load, four elements a store: any strides of the image.
void vision_patchify_quads(const VisionPatchifyProblem& problem, const Target& target);
const char* vision_patchify_quads_refusal(const VisionPatchifyProblem& problem,
                                          const Target& target);

/// One element at a time: any call.
void vision_patchify_scalar(const VisionPatchifyProblem& problem, const Target& target);

}  // namespace k3::cuda
