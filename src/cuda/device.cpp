// SPDX-License-Identifier: Apache-2.0
#include "cuda/device.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"

namespace k3::cuda {
namespace {

CudaDeviceInfo read_properties(int device) {
  cudaDeviceProp prop;
  K3_CUDA_CHECK(cudaGetDeviceProperties(&prop, device));
  CudaDeviceInfo info;
  info.index = device;
  info.name = prop.name;
  info.arch = 10 * prop.major + prop.minor;
  info.num_sms = prop.multiProcessorCount;
  info.memory_bytes = prop.totalGlobalMem;
  info.l2_bytes = static_cast<std::size_t>(prop.l2CacheSize);
  info.pdl = prop.major >= 9;
  return info;
}

std::string reason_for_none(cudaError_t error) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "no CUDA driver is installed";
  return error == cudaSuccess ? "the driver reports no CUDA device" : cudaGetErrorString(error);
}

template <class Element>
void read_elements(int device, void* stream, const Element* from, std::int64_t stride,
                   std::span<Element> to) {
  const DeviceGuard guard(device);
  K3_CUDA_CHECK(guard.error());
  auto* const at = static_cast<cudaStream_t>(stream);
  for (std::size_t i = 0; i < to.size(); ++i)
    K3_CUDA_CHECK(cudaMemcpyAsync(&to[i], from + static_cast<std::int64_t>(i) * stride,
                                  sizeof(Element), cudaMemcpyDeviceToHost, at));
  K3_CUDA_CHECK(cudaStreamSynchronize(at));
}

}  // namespace

const CudaDeviceInfo& properties(int device) {
  static std::mutex mutex;
  static std::map<int, CudaDeviceInfo> cache;
  const std::lock_guard lock(mutex);
  auto it = cache.find(device);
  if (it == cache.end()) it = cache.emplace(device, read_properties(device)).first;
  return it->second;
}

std::vector<CudaDeviceInfo> devices(std::string* why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    if (why != nullptr) *why = reason_for_none(error);
    return {};
  }
  std::vector<CudaDeviceInfo> infos;
  for (int device = 0; device < count; ++device) infos.push_back(properties(device));
  return infos;
}

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  K3_CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

void read_strided(int device, void* stream, const std::int32_t* from, std::int64_t stride,
                  std::span<std::int32_t> to) {
  read_elements(device, stream, from, stride, to);
}

void read_strided(int device, void* stream, const std::int64_t* from, std::int64_t stride,
                  std::span<std::int64_t> to) {
  read_elements(device, stream, from, stride, to);
}

}  // namespace k3::cuda
