// SPDX-License-Identifier: Apache-2.0
#include "harness/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/common/error.h"
#include "cuda/device.h"
#include "harness/cuda_timing.h"
#include "k3/error.h"

namespace k3::harness {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kGuardByte{0xC3};

Device current_device() {
  int index = 0;
  K3_CUDA_CHECK(cudaGetDevice(&index));
  return {DeviceKind::kCuda, index};
}

std::size_t round_up(std::size_t bytes) {
  return (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
}

/// Where the storages of a bundle stand in one block of device memory: each on a multiple of 256
/// bytes, with at least 256 guard bytes before and after it.
class Layout {
 public:
  explicit Layout(const Bundle& bundle) {
    for (const auto& [name, tensor] : bundle.tensors)
      if (tensor.defined()) {
        parts_.push_back({name, total_, tensor.storage_bytes()});
        total_ += round_up(tensor.storage_bytes()) + kGuardBytes;
      }
  }

  [[nodiscard]] std::size_t offset(const std::string& name) const {
    return std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.name == name; })
        ->offset;
  }
  [[nodiscard]] std::size_t total_bytes() const { return total_; }

  /// The whole block as it is before the call: storages, and guard bytes everywhere else. Waits.
  void upload(const Bundle& bundle, std::byte* base) const {
    K3_CUDA_CHECK(cudaMemset(base, static_cast<int>(kGuardByte), total_));
    for (const auto& [name, tensor] : bundle.tensors)
      if (tensor.defined() && tensor.storage_bytes() > 0)
        K3_CUDA_CHECK(cudaMemcpy(base + offset(name), tensor.storage(), tensor.storage_bytes(),
                                 cudaMemcpyHostToDevice));
    K3_CUDA_CHECK(cudaDeviceSynchronize());
  }

  /// Copies the storages back. @throws Error naming the tensor beside which a guard byte has
  /// changed.
  void read_back(const std::vector<std::byte>& bytes, Bundle& bundle) const {
    std::size_t guard_begin = 0;
    std::string before = "the first tensor";
    for (const Part& part : parts_) {
      check_guard(bytes, guard_begin, part.offset, before, part.name);
      guard_begin = part.offset + part.bytes;
      before = part.name;
    }
    check_guard(bytes, guard_begin, total_, before, "the end");
    for (auto& [name, tensor] : bundle.tensors)
      if (tensor.defined() && tensor.storage_bytes() > 0)
        std::memcpy(tensor.storage(), bytes.data() + offset(name), tensor.storage_bytes());
  }

  /// The call over a block that starts at `base`.
  [[nodiscard]] Call call(const Bundle& bundle, std::byte* base, Device device) const {
    Call call;
    call.scalars = bundle.scalars;
    for (const auto& [name, tensor] : bundle.tensors)
      if (tensor.defined()) call.tensors[name] = tensor.view_at(base + offset(name), device);
    return call;
  }

 private:
  struct Part {
    std::string name;
    std::size_t offset;
    std::size_t bytes;
  };

  static void check_guard(const std::vector<std::byte>& bytes, std::size_t begin, std::size_t end,
                          const std::string& before, const std::string& after) {
    for (std::size_t i = begin; i < end; ++i)
      if (bytes[i] != kGuardByte)
        throw Error(fmt::format(
            "stray write in device memory: {} bytes past the end of {}, {} bytes ahead of {}",
            i - begin, before, end - i, after));
  }

  std::vector<Part> parts_;
  std::size_t total_ = kGuardBytes;
};

/// Scratch memory of exactly the bytes asked for, with guard bytes on both sides.
class GuardedWorkspace {
 public:
  GuardedWorkspace(std::size_t bytes, std::byte fill)
      : bytes_(bytes), block_(bytes + 2 * kGuardBytes) {
    K3_CUDA_CHECK(cudaMemset(block_.data(), static_cast<int>(kGuardByte), bytes + 2 * kGuardBytes));
    K3_CUDA_CHECK(cudaMemset(block_.data() + kGuardBytes, static_cast<int>(fill), bytes));
  }
  [[nodiscard]] Workspace get() const {
    return bytes_ == 0 ? Workspace{} : Workspace{block_.data() + kGuardBytes, bytes_};
  }
  /// @throws Error where a guard byte has changed.
  void check() const {
    std::array<std::byte, kGuardBytes> guard;
    for (const std::size_t begin : {std::size_t{0}, kGuardBytes + bytes_}) {
      K3_CUDA_CHECK(
          cudaMemcpy(guard.data(), block_.data() + begin, kGuardBytes, cudaMemcpyDeviceToHost));
      if (std::any_of(guard.begin(), guard.end(), [](std::byte b) { return b != kGuardByte; }))
        throw Error(fmt::format("stray write in device memory {} the workspace",
                                begin == 0 ? "before" : "behind"));
    }
  }

 private:
  std::size_t bytes_;
  CudaBuffer block_;
};

ExecContext context_on(cudaStream_t stream, const std::string& variant) {
  ExecContext ctx;
  ctx.backend = Backend::kCuda;
  ctx.stream = stream;
  ctx.variant = variant.empty() ? nullptr : variant.c_str();
  return ctx;
}

/// Calls with their workspaces.
class Calls {
 public:
  Calls(std::span<const DeviceCall> calls, const Workspaces& workspaces)
      : calls_(calls.begin(), calls.end()) {
    std::size_t largest = 0;
    for (const DeviceCall& c : calls_) {
      const auto bytes = c.driver->workspace_size(c.call, context_on(nullptr, c.variant));
      largest = std::max(largest, bytes);
      if (!workspaces.shared) workspaces_.emplace_back(bytes, workspaces.fill);
    }
    if (workspaces.shared) workspaces_.emplace_back(largest, workspaces.fill);
  }
  void enqueue(cudaStream_t stream) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      ExecContext ctx = context_on(stream, calls_[i].variant);
      ctx.workspace = workspaces_[std::min(i, workspaces_.size() - 1)].get();
      calls_[i].driver->run(calls_[i].call, ctx);
    }
  }
  void check_workspaces() const {
    for (const GuardedWorkspace& workspace : workspaces_) workspace.check();
  }

 private:
  std::vector<DeviceCall> calls_;
  std::vector<GuardedWorkspace> workspaces_;
};

}  // namespace

const char* cuda_unusable() {
  thread_local std::string reason;
  const auto devices = cuda_devices(&reason);
  if (devices.empty()) return reason.c_str();
  const CudaDeviceInfo& device = devices.at(static_cast<std::size_t>(current_device().index));
  if (device.has_image) return nullptr;
  reason = "this build holds no code for " + device.name;
  return reason.c_str();
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) != cudaSuccess)
    static_cast<void>(cudaGetLastError());  // the error would be the next call's
  data_ = static_cast<std::byte*>(data);
}
DeviceMemory::~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
void DeviceMemory::fill(std::byte byte) {
  K3_CUDA_CHECK(cudaMemset(data_, static_cast<int>(byte), bytes_));
  K3_CUDA_CHECK(cudaDeviceSynchronize());
}
void DeviceMemory::write(std::size_t offset, std::span<const std::byte> bytes) {
  K3_CUDA_CHECK(cudaMemcpy(data_ + offset, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
}
void DeviceMemory::read(std::size_t offset, std::span<std::byte> bytes) const {
  K3_CUDA_CHECK(cudaMemcpy(bytes.data(), data_ + offset, bytes.size(), cudaMemcpyDeviceToHost));
}

struct DeviceBundle::Impl {
  explicit Impl(const Bundle& bundle)
      : layout(bundle),
        block(layout.total_bytes()),
        call(layout.call(bundle, block.data(), current_device())) {}

  Layout layout;
  CudaBuffer block;
  Call call;
};

DeviceBundle::DeviceBundle(const Bundle& bundle) : impl_(std::make_unique<Impl>(bundle)) {
  upload(bundle);
}
DeviceBundle::~DeviceBundle() = default;
const Call& DeviceBundle::call() const { return impl_->call; }

void DeviceBundle::upload(const Bundle& bundle) {
  impl_->layout.upload(bundle, impl_->block.data());
}

void DeviceBundle::download(Bundle& bundle) const {
  std::vector<std::byte> image(impl_->layout.total_bytes());
  K3_CUDA_CHECK(
      cudaMemcpy(image.data(), impl_->block.data(), image.size(), cudaMemcpyDeviceToHost));
  impl_->layout.read_back(image, bundle);
}

double run_on_device(std::span<const DeviceCall> calls, const Workspaces& workspaces) {
  const Calls prepared(calls, workspaces);
  const CudaStream stream;
  K3_CUDA_CHECK(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  prepared.enqueue(stream.get());
  K3_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - begin;
  prepared.check_workspaces();
  return elapsed.count();
}

struct DeviceGraph::Impl {
  Impl(std::span<const DeviceCall> span, const Workspaces& workspaces)
      : calls(span, workspaces), graph(stream.get(), [&] { calls.enqueue(stream.get()); }) {}

  CudaStream stream;
  Calls calls;
  CudaGraph graph;
};

DeviceGraph::DeviceGraph(std::span<const DeviceCall> calls, const Workspaces& workspaces)
    : impl_(std::make_unique<Impl>(calls, workspaces)) {}
DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::replay() {
  impl_->graph.launch(impl_->stream.get());
  K3_CUDA_CHECK(cudaStreamSynchronize(impl_->stream.get()));
  impl_->calls.check_workspaces();
}

double run_once_on_device(const Driver& driver, Bundle& bundle, const RunOptions& options) {
  const DeviceBundle tensors(bundle);
  const DeviceCall call = {&driver, tensors.call(), options.variant};
  const double elapsed = run_on_device({&call, 1});
  tensors.download(bundle);
  return elapsed;
}

Timing time_op_on_device(const Driver& driver, const Bundle& bundle, const RunOptions& options) {
  const Device device = current_device();
  const Layout layout(bundle);
  ExecContext ctx = context_on(nullptr, options.variant);

  // A set is cold again once the others have moved four times the L2 through it.
  constexpr double kMaxSets = 8000;
  const auto cold_bytes = 4.0 * static_cast<double>(cuda::properties(device.index).l2_bytes);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  K3_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  const double set_bytes = static_cast<double>(layout.total_bytes());
  const double fitting = std::max(1.0, 0.8 * static_cast<double>(free_bytes) / set_bytes);
  const double wanted = std::max(2.0, std::ceil(cold_bytes / driver.cost(bundle).bytes) + 1);
  const int num_sets = static_cast<int>(std::min({wanted, fitting, kMaxSets}));

  const std::size_t stride = layout.total_bytes();
  const CudaBuffer block(stride * static_cast<std::size_t>(num_sets));
  layout.upload(bundle, block.data());
  for (int set = 1; set < num_sets; ++set)
    K3_CUDA_CHECK(cudaMemcpyAsync(block.data() + stride * static_cast<std::size_t>(set),
                                  block.data(), stride, cudaMemcpyDeviceToDevice, nullptr));
  ctx.workspace.bytes = driver.workspace_size(layout.call(bundle, block.data(), device), ctx);
  const CudaBuffer workspace(ctx.workspace.bytes);
  if (ctx.workspace.bytes > 0) ctx.workspace.data = workspace.data();
  K3_CUDA_CHECK(cudaDeviceSynchronize());

  return time_in_graphs(num_sets, [&](int set, cudaStream_t stream) {
    ctx.stream = stream;
    std::byte* base = block.data() + stride * static_cast<std::size_t>(set);
    driver.run(layout.call(bundle, base, device), ctx);
  });
}

}  // namespace k3::harness
