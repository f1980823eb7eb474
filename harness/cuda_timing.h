// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "harness/runner.h"

namespace k3::harness {

/// A stream of the current device, gone with the object.
class CudaStream {
 public:
  CudaStream();
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Device memory, freed with the object. 256-byte aligned.
class CudaBuffer {
 public:
  CudaBuffer() = default;
  explicit CudaBuffer(std::size_t bytes);
  ~CudaBuffer();
  CudaBuffer(CudaBuffer&& other) noexcept;
  CudaBuffer& operator=(CudaBuffer&&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// What `body` launches in `stream`, as a graph. Captured in global mode: an allocation or a wait
/// in `body` fails.
class CudaGraph {
 public:
  CudaGraph(cudaStream_t stream, const std::function<void()>& body);
  ~CudaGraph();
  CudaGraph(CudaGraph&& other) noexcept;
  CudaGraph& operator=(CudaGraph&&) = delete;
  void launch(cudaStream_t stream) const;

 private:
  cudaGraphExec_t exec_ = nullptr;
};

inline constexpr int kLaunchesPerGraph = 20;

/// Time of one launch. `launch(i, stream)` is captured for i = 0, 1, ... into as many graphs of
/// kLaunchesPerGraph launches as it takes to reach `num_sets`, so that a launch finds its set of
/// tensors `i % num_sets` as cold as the rotation of all sets leaves it. After one untimed round,
/// replays are queued behind a kernel that keeps the GPU busy until the host is done queueing, with
/// an event between any two.
Timing time_in_graphs(int num_sets, const std::function<void(int, cudaStream_t)>& launch);

}  // namespace k3::harness
