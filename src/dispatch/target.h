// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "k3/context.h"
#include "k3/tensor.h"

namespace k3 {

/// What a kernel may use: the context with its open choices made.
struct Target {
  Backend backend = Backend::kCpu;  ///< never kAuto
  Device device;
  int arch = 0;            ///< CUDA: 10 * major + minor
  int threads = 1;         ///< CPU
  void* stream = nullptr;  ///< CUDA
  bool pdl = false;        ///< asked for and possible on this chip
  Workspace workspace;
};

}  // namespace k3
