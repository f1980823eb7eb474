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
///
/// On the CPU a call returns when it is done. On CUDA it only enqueues kernels on `stream`: it
/// never allocates, waits or reads device memory, so it can be captured in a graph, and the tensors
/// and the workspace must stay until the stream has passed it.
///
/// CPU threads are OpenMP's, with its limits: after a fork() the child must use threads = 1 if the
/// parent has used more, and OpenMP ends a process that may not start the threads it asks for.
///
/// Two environment variables speak to people: K3_VERBOSE=1 prints to stderr which variant each call
/// takes and why others were refused; K3_FORCE=op:variant[,op:variant] forces variants by the names
/// that `k3 ops` prints. A third is for finding errors: K3_DEBUG_CHECKS=1 also checks what no call
/// pays for, the values in index tensors on a device and slots that two requests share, and waits
/// for the stream to do so (not while it records a graph). They are read at each call.
struct ExecContext {
  Backend backend = Backend::kAuto;
  /// CUDA: a `cudaStream_t` of the tensors' device; null is the default stream.
  void* stream = nullptr;
  /// CPU: number of threads, at most 1024; 0 for all that OpenMP gives. Results do not depend on
  /// it.
  int threads = 0;
  Workspace workspace{};
  /// CUDA: launch programmatically dependent on the previous kernel, where the chip can. What an op
  /// calls constant is then read while any earlier kernel may still run: none of them may write it.
  bool pdl = true;
  /// The variant to take, by the name that `k3 ops` prints; null lets the library choose. Goes
  /// before K3_FORCE.
  const char* variant = nullptr;
};

}  // namespace k3
