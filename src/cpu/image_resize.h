// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "contract/image_resize.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void image_resize(const ImageResizeProblem& problem, const Target& target);
std::size_t image_resize_workspace(const ImageResizeProblem& problem, const Target& target);

}  // namespace k3::cpu
