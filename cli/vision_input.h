// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/picture.h"
#include "harness/runner.h"
#include "harness/tensor.h"

/// From a picture to a call of vision_patchify, as the model's image processor goes.
namespace k3::cli {

/// What the processor makes of a picture: resized so that it holds at most 65,536 patches of 14 and
/// 512 along a side, then padded to whole tokens of 2 x 2 patches.
struct VisionSizes {
  static constexpr int kPatch = 14;
  static constexpr int kToken = 2 * kPatch;

  int width = 0;
  int height = 0;
  int padded_width = 0;
  int padded_height = 0;
};
VisionSizes vision_sizes(int width, int height);

/// Reads, composes, resizes and says on stdout what it did. The bundle is a call of
/// vision_patchify with u8 pixels and f32 patches.
harness::Bundle vision_input(const std::string& path, const Colour& background, harness::RunOn on);

}  // namespace k3::cli
