// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "contract/image_resize.h"
#include "dispatch/kernel.h"

/// The CUDA variants of image_resize. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// Both passes in one launch, through shared memory.
void image_resize_tile(const ImageResizeProblem& problem, const Target& target);
const char* image_resize_tile_refusal(const ImageResizeProblem& problem, const Target& target);

/// Weights, rows, columns: three launches, with what lies between them in the workspace.
void image_resize_two_pass(const ImageResizeProblem& problem, const Target& target);
std::size_t image_resize_two_pass_workspace(const ImageResizeProblem& problem,
                                            const Target& target);

}  // namespace k3::cuda
