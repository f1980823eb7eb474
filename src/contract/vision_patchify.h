// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "contract/checks.h"
#include "k3/ops/vision_patchify.h"

namespace k3 {

/// A checked call: what every backend receives. Strides are in elements.
struct VisionPatchifyProblem {
  std::int64_t B = 0;
  std::int64_t H = 0;
  std::int64_t W = 0;
  int C = 0;
  int P = 0;
  int grid_height = 0;
  int grid_width = 0;
  int patch_elements = 0;  ///< C * P * P

  DType image_dtype = DType::kNone;
  const void* image = nullptr;
  std::int64_t image_stride_b = 0;
  std::int64_t image_stride_c = 0;
  std::int64_t image_stride_y = 0;
  std::int64_t image_stride_x = 0;

  DType affine_dtype = DType::kNone;  ///< of scale and bias, each [C]
  const void* scale = nullptr;
  const void* bias = nullptr;

  DType out_dtype = DType::kNone;
  void* out = nullptr;  ///< [B, grid_height * grid_width, patch_elements]
  std::int64_t out_stride_b = 0;
  std::int64_t out_stride_patch = 0;

  Device device;

  [[nodiscard]] bool empty() const {
    return B == 0 || grid_height == 0 || grid_width == 0 || patch_elements == 0;
  }
};

/// The op's tensors; everything that treats them alike reads this list.
std::span<const ArgRule<VisionPatchifyArgs>> vision_patchify_args();

/// @throws ContractError
VisionPatchifyProblem check(const VisionPatchifyArgs& args, Purpose purpose = Purpose::kRun);

}  // namespace k3
