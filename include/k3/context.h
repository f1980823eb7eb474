// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace k3 {

/// `kAuto` follows the tensors: CPU tensors run on the CPU, CUDA tensors on their device.
enum class Backend { kAuto, kCpu, kCuda };

/// Scratch memory of the caller, on the device the op runs on, 256-byte aligned on CUDA and 64-byte
/// aligned on the CPU. Its contents are not kept between calls. `<op>_workspace_size` gives the
/// bytes.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// How an op runs. One context may serve many calls, but not two at once: they would share the
/// workspace.
struct ExecContext {
  Backend backend = Backend::kAuto;
  /// CUDA: a `cudaStream_t` of the tensors' device; null is the default stream.
  void* stream = nullptr;
  /// CPU: number of threads, 0 for all that OpenMP gives. Results do not depend on it.
  int threads = 0;
  Workspace workspace{};
  /// CUDA: launch programmatically dependent on the previous kernel in the stream, where the chip
  /// allows it.
  bool pdl = true;
};

}  // namespace k3
