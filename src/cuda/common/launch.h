// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "dispatch/target.h"

namespace k3::cuda {

/// Threads that an SM of the chip being compiled for holds; what launch bounds may ask for. In host
/// code the most that any chip's SM holds.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
inline constexpr int kThreadsOfSm = 1536;
#else
inline constexpr int kThreadsOfSm = 2048;
#endif

struct LaunchConfig {
  dim3 grid{1};
  dim3 block{1};
  std::size_t dynamic_smem_bytes = 0;
  unsigned cluster_size = 1;  ///< CTAs along x; divides grid.x
  /// The kernel may start while its predecessor in the stream still runs; it must wait for it
  /// (pdl.cuh) before it touches memory that the predecessor reads or writes.
  bool pdl = false;
  cudaStream_t stream = nullptr;
};

/// Where and how the target asks for; the grid is the caller's.
inline LaunchConfig launch_config(const Target& target) {
  LaunchConfig config;
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  return config;
}

/// `x` CTAs for each of n >= 1 requests, along y and, past 32768 of them, z: the kernel's request
/// is y + z * gridDim.y, and the last ones may reach past n.
inline dim3 grid_over_requests(unsigned x, int n) {
  constexpr unsigned kMaxY = 32768;
  const auto requests = static_cast<unsigned>(n);
  return {x, requests < kMaxY ? requests : kMaxY, (requests - 1) / kMaxY + 1};
}

/// Launches on the current device. Dynamic shared memory beyond the default limit is opted into
/// here: the limit belongs to the kernel on one device, so it is set for the device in use each
/// time.
template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), const LaunchConfig& config, Args&&... args) {
  constexpr std::size_t kDefaultSmemLimit = 48 * 1024;
  if (config.dynamic_smem_bytes > kDefaultSmemLimit) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(config.dynamic_smem_bytes));
    if (error != cudaSuccess) return error;
  }

  cudaLaunchAttribute attributes[2];
  unsigned num_attributes = 0;
  if (config.cluster_size > 1) {
    cudaLaunchAttribute& cluster = attributes[num_attributes++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = config.cluster_size;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  if (config.pdl) {
    cudaLaunchAttribute& pdl = attributes[num_attributes++];
    pdl.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    pdl.val.programmaticStreamSerializationAllowed = 1;
  }

  cudaLaunchConfig_t raw = {};
  raw.gridDim = config.grid;
  raw.blockDim = config.block;
  raw.dynamicSmemBytes = config.dynamic_smem_bytes;
  raw.stream = config.stream;
  raw.attrs = attributes;
  raw.numAttrs = num_attributes;
  return cudaLaunchKernelEx(&raw, kernel, std::forward<Args>(args)...);
}

/// Makes `device` current for a scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    error_ = cudaGetDevice(&previous_);
    if (error_ == cudaSuccess && previous_ != device) {
      error_ = cudaSetDevice(device);
      changed_ = error_ == cudaSuccess;
    }
  }
  ~DeviceGuard() {
    if (changed_) static_cast<void>(cudaSetDevice(previous_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  [[nodiscard]] cudaError_t error() const { return error_; }

 private:
  cudaError_t error_ = cudaSuccess;
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace k3::cuda
