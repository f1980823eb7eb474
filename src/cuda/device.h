// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
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

/// True while `stream` (a cudaStream_t) records a graph. @throws CudaError
bool is_capturing(void* stream);

/// Fills `to` with every stride-th element from device memory, in stream order, and waits for it.
/// @throws CudaError
void read_strided(int device, void* stream, const std::int32_t* from, std::int64_t stride,
                  std::span<std::int32_t> to);
void read_strided(int device, void* stream, const std::int64_t* from, std::int64_t stride,
                  std::span<std::int64_t> to);

}  // namespace k3::cuda
