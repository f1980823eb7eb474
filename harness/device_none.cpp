// SPDX-License-Identifier: Apache-2.0
#include "harness/device.h"
#include "k3/error.h"

namespace k3::harness {

const char* cuda_unusable() { return "this build of libk3 has no CUDA kernels"; }

double run_once_on_device(const Driver&, Bundle&, const RunOptions&) {
  throw UnsupportedError(cuda_unusable());
}

Timing time_op_on_device(const Driver&, const Bundle&, const RunOptions&) {
  throw UnsupportedError(cuda_unusable());
}

Ceilings measure_cuda_ceilings() { throw UnsupportedError(cuda_unusable()); }

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {}
DeviceMemory::~DeviceMemory() = default;
void DeviceMemory::fill(std::byte) { throw UnsupportedError(cuda_unusable()); }
void DeviceMemory::write(std::size_t, std::span<const std::byte>) {
  throw UnsupportedError(cuda_unusable());
}
void DeviceMemory::read(std::size_t, std::span<std::byte>) const {
  throw UnsupportedError(cuda_unusable());
}

struct DeviceBundle::Impl {
  Call call;
};
DeviceBundle::DeviceBundle(const Bundle&) { throw UnsupportedError(cuda_unusable()); }
DeviceBundle::~DeviceBundle() = default;
const Call& DeviceBundle::call() const { return impl_->call; }
void DeviceBundle::upload(const Bundle&) {}
void DeviceBundle::download(Bundle&) const {}

double run_on_device(std::span<const DeviceCall>, const Workspaces&) {
  throw UnsupportedError(cuda_unusable());
}

struct DeviceGraph::Impl {};
DeviceGraph::DeviceGraph(std::span<const DeviceCall>, const Workspaces&) {
  throw UnsupportedError(cuda_unusable());
}
DeviceGraph::~DeviceGraph() = default;
void DeviceGraph::replay() {}

}  // namespace k3::harness
