// SPDX-License-Identifier: Apache-2.0
#include "harness/cuda_timing.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/common/error.h"

namespace k3::harness {
namespace {

constexpr int kReplays = 31;

__global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

class Event {
 public:
  Event() { K3_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

CudaStream::CudaStream() {
  K3_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}
CudaStream::~CudaStream() { static_cast<void>(cudaStreamDestroy(stream_)); }

CudaBuffer::CudaBuffer(std::size_t bytes) {
  void* data = nullptr;
  K3_CUDA_CHECK(cudaMalloc(&data, std::max<std::size_t>(bytes, 1)));
  data_ = static_cast<std::byte*>(data);
}
CudaBuffer::~CudaBuffer() { static_cast<void>(cudaFree(data_)); }
CudaBuffer::CudaBuffer(CudaBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

CudaGraph::CudaGraph(cudaStream_t stream, const std::function<void()>& body) {
  K3_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &graph));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    throw;
  }
  K3_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  K3_CUDA_CHECK(error);
}
CudaGraph::~CudaGraph() {
  if (exec_ != nullptr) static_cast<void>(cudaGraphExecDestroy(exec_));
}
CudaGraph::CudaGraph(CudaGraph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
void CudaGraph::launch(cudaStream_t stream) const { K3_CUDA_CHECK(cudaGraphLaunch(exec_, stream)); }

Timing time_in_graphs(int num_sets, const std::function<void(int, cudaStream_t)>& launch) {
  const CudaStream stream;
  const int num_graphs = std::max(1, (num_sets + kLaunchesPerGraph - 1) / kLaunchesPerGraph);
  std::vector<CudaGraph> graphs;
  for (int g = 0; g < num_graphs; ++g)
    graphs.emplace_back(stream.get(), [&] {
      for (int i = 0; i < kLaunchesPerGraph; ++i)
        launch((g * kLaunchesPerGraph + i) % num_sets, stream.get());
    });

  for (const CudaGraph& graph : graphs) graph.launch(stream.get());
  K3_CUDA_CHECK(cudaStreamSynchronize(stream.get()));

  constexpr long long kSpinCycles =
      2'000'000;  // about a millisecond: 31 replays are queued in less
  spin<<<1, 1, 0, stream.get()>>>(kSpinCycles);
  K3_CUDA_CHECK(cudaGetLastError());
  std::vector<Event> events(kReplays + 1);
  for (int r = 0; r < kReplays; ++r) {
    K3_CUDA_CHECK(cudaEventRecord(events[r].get(), stream.get()));
    graphs[r % num_graphs].launch(stream.get());
  }
  K3_CUDA_CHECK(cudaEventRecord(events[kReplays].get(), stream.get()));
  K3_CUDA_CHECK(cudaStreamSynchronize(stream.get()));

  std::vector<double> us;
  for (int r = 0; r < kReplays; ++r) {
    float ms = 0.0F;
    K3_CUDA_CHECK(cudaEventElapsedTime(&ms, events[r].get(), events[r + 1].get()));
    us.push_back(1e3 * ms / kLaunchesPerGraph);
  }
  std::sort(us.begin(), us.end());
  return {us[kReplays / 2], us[kReplays / 10], us[kReplays - 1 - kReplays / 10]};
}

}  // namespace k3::harness
