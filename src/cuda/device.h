// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "k3/device.h"

namespace k3::cuda {

/// Every device of the driver (`has_image` is left to the caller). Empty where there is no driver
/// or no device; `why` then says which.
std::vector<CudaDeviceInfo> devices(std::string* why);

/// Properties of one device, read once per process. @throws CudaError
const CudaDeviceInfo& properties(int device);

/// 10 * major + minor. @throws CudaError
inline int arch_of(int device) { return properties(device).arch; }

}  // namespace k3::cuda
