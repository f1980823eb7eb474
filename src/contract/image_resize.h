// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "k3/ops/image_resize.h"

namespace k3 {

/// [B, C, H, W] bytes.
template <class Byte>
struct ImagePlanes {
  Byte* data = nullptr;
  int height = 0;
  int width = 0;
  std::int64_t stride_b = 0;
  std::int64_t stride_c = 0;
  std::int64_t stride_y = 0;
  std::int64_t stride_x = 0;
};

/// A checked call: what every backend receives.
struct ImageResizeProblem {
  std::int64_t B = 0;
  std::int64_t C = 0;
  ImagePlanes<const std::uint8_t> image;
  ImagePlanes<std::uint8_t> out;
  Device device;

  [[nodiscard]] bool empty() const { return B == 0 || C == 0 || out.height == 0 || out.width == 0; }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<ImageResizeArgs>> image_resize_args();

/// @throws ContractError
ImageResizeProblem check(const ImageResizeArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
