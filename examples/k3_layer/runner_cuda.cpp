// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "cuda/common/error.h"
#include "cuda/device.h"
#include "examples/k3_layer/runner.h"
#include "harness/cuda_timing.h"

namespace k3::layer {
namespace {

using harness::Call;
using harness::CudaBuffer;
using harness::CudaGraph;
using harness::CudaStream;
using harness::Tensor;

int current_device() {
  int index = 0;
  K3_CUDA_CHECK(cudaGetDevice(&index));
  return index;
}

/// Where the storages of all the calls' tensors stand in a block of device memory, each once.
class Image {
 public:
  explicit Image(const Ops& ops) {
    for (const Op& op : ops)
      for (const auto& [name, tensor] : op.bundle.tensors) add(tensor);
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t offset(const Tensor& tensor) const {
    return offsets_.at(tensor.storage());
  }
  void upload(std::byte* base) const {
    for (const Tensor& tensor : tensors_)
      K3_CUDA_CHECK(cudaMemcpy(base + offset(tensor), tensor.storage(), tensor.storage_bytes(),
                               cudaMemcpyHostToDevice));
    K3_CUDA_CHECK(cudaDeviceSynchronize());
  }
  /// The call over the image at `base`.
  [[nodiscard]] Call call(const Op& op, std::byte* base, int device) const {
    Call call;
    call.scalars = op.bundle.scalars;
    for (const auto& [name, tensor] : op.bundle.tensors)
      call.tensors[name] = tensor.view_at(base + offset(tensor), {DeviceKind::kCuda, device});
    return call;
  }

 private:
  void add(const Tensor& tensor) {
    constexpr std::size_t kAlignment = 256;
    if (!offsets_.emplace(tensor.storage(), bytes_).second) return;
    tensors_.push_back(tensor);
    bytes_ += (tensor.storage_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }

  std::map<const std::byte*, std::size_t> offsets_;
  std::vector<Tensor> tensors_;
  std::size_t bytes_ = 0;
};

/// The calls over one image, with a workspace that they share.
class Calls {
 public:
  Calls(const Ops& ops, const Image& image, std::byte* base) {
    const int device = current_device();
    for (const Op& op : ops) {
      calls_.push_back({op.driver, image.call(op, base, device)});
      bytes_ = std::max(
          bytes_, op.driver->workspace_size(calls_.back().second, {.backend = Backend::kCuda}));
    }
  }
  [[nodiscard]] std::size_t workspace_bytes() const { return bytes_; }
  void enqueue(cudaStream_t stream, std::byte* workspace) const {
    ExecContext ctx;
    ctx.backend = Backend::kCuda;
    ctx.stream = stream;
    ctx.workspace = {workspace, bytes_};
    for (const auto& [driver, call] : calls_) driver->run(call, ctx);
  }

 private:
  std::vector<std::pair<const harness::Driver*, Call>> calls_;
  std::size_t bytes_ = 0;
};

class CudaRunner final : public Runner {
 public:
  explicit CudaRunner(const Ops& ops)
      : image_(ops),
        memory_(image_.bytes()),
        calls_(ops, image_, memory_.data()),
        workspace_(calls_.workspace_bytes()),
        graph_(stream_.get(), [this] { calls_.enqueue(stream_.get(), workspace_.data()); }) {
    image_.upload(memory_.data());
  }
  void put(const Tensor& tensor) override {
    copy(memory_.data() + image_.offset(tensor), tensor.storage(), tensor.storage_bytes(),
         cudaMemcpyHostToDevice);
  }
  void get(Tensor& tensor) override {
    copy(tensor.storage(), memory_.data() + image_.offset(tensor), tensor.storage_bytes(),
         cudaMemcpyDeviceToHost);
  }
  void step() override {
    graph_.launch(stream_.get());
    K3_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    K3_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()));
    K3_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  }

  CudaStream stream_;
  Image image_;
  CudaBuffer memory_;
  Calls calls_;
  CudaBuffer workspace_;
  CudaGraph graph_;
};

/// So many that the others move four times the L2 before a set comes again.
int num_sets(const Ops& ops, const Image& image) {
  constexpr double kMaxSets = 8000;
  double moved = 0.0;
  for (const Op& op : ops) moved += op.driver->cost(op.bundle).bytes;
  const double cold = 4.0 * static_cast<double>(cuda::properties(current_device()).l2_bytes);
  const double wanted = std::max(2.0, std::ceil(cold / moved) + 1);
  const double fitting =
      std::max(1.0, 0.8 * free_cuda_bytes() / static_cast<double>(image.bytes()));
  const double sets = std::min({wanted, fitting, kMaxSets});
  if (sets < wanted)
    std::fprintf(stderr, "k3: room for %.0f of %.0f sets of tensors: a time is of a warmer L2\n",
                 std::floor(sets), wanted);
  return static_cast<int>(sets);
}

}  // namespace

std::unique_ptr<Runner> make_cuda_runner(const Ops& ops) {
  return std::make_unique<CudaRunner>(ops);
}

harness::Timing time_chain_on_cuda(const Ops& ops) {
  const Image image(ops);
  const int count = num_sets(ops, image);
  const CudaBuffer memory(image.bytes() * static_cast<std::size_t>(count));
  std::vector<Calls> sets;
  for (int set = 0; set < count; ++set) {
    std::byte* const base = memory.data() + image.bytes() * static_cast<std::size_t>(set);
    sets.emplace_back(ops, image, base);
    if (set == 0)
      image.upload(base);
    else
      K3_CUDA_CHECK(cudaMemcpy(base, memory.data(), image.bytes(), cudaMemcpyDeviceToDevice));
  }
  const CudaBuffer workspace(sets.front().workspace_bytes());
  K3_CUDA_CHECK(cudaDeviceSynchronize());
  return harness::time_in_graphs(
      count, [&](int set, cudaStream_t stream) { sets[set].enqueue(stream, workspace.data()); });
}

int count_launches_on_cuda(const Ops& ops) {
  const Image image(ops);
  const CudaBuffer memory(image.bytes());
  const Calls calls(ops, image, memory.data());
  const CudaBuffer workspace(calls.workspace_bytes());
  const CudaStream stream;
  K3_CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  calls.enqueue(stream.get(), workspace.data());
  cudaGraph_t graph = nullptr;
  K3_CUDA_CHECK(cudaStreamEndCapture(stream.get(), &graph));
  std::size_t nodes = 0;
  const cudaError_t error = cudaGraphGetNodes(graph, nullptr, &nodes);
  static_cast<void>(cudaGraphDestroy(graph));
  K3_CUDA_CHECK(error);
  return static_cast<int>(nodes);
}

double free_cuda_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  K3_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<double>(free);
}

}  // namespace k3::layer
