// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "k3/export.h"

namespace k3 {

/// One CUDA device as the driver reports it.
struct CudaDeviceInfo {
  int index = 0;
  std::string name;
  int arch = 0;  ///< 10 * major + minor, for example 90
  int num_sms = 0;
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  bool pdl = false;        ///< programmatic dependent launch
  bool has_image = false;  ///< this build carries code for it
};

struct CpuInfo {
  std::string name;
  int threads = 1;          ///< what `ExecContext::threads = 0` uses
  std::string simd_target;  ///< the instruction set chosen at run time: "AVX2", "AVX3", ...
};

K3_API CpuInfo cpu_info();

/// Empty where the build has no CUDA, or no driver or device is present; `why` then says which.
K3_API std::vector<CudaDeviceInfo> cuda_devices(std::string* why = nullptr);

/// True where the library was built with CUDA kernels.
K3_API bool built_with_cuda();

}  // namespace k3
