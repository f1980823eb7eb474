// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "examples/k3_layer/program.h"
#include "harness/runner.h"

/// A step on the CPU or on CUDA.
namespace k3::layer {

/// Calls that find the tensors as those before them left them.
class Runner {
 public:
  virtual ~Runner() = default;
  /// Takes over the host's values of a tensor's storage.
  virtual void put(const harness::Tensor& tensor) = 0;
  /// Brings them back.
  virtual void get(harness::Tensor& tensor) = 0;
  /// All calls once, and waits.
  virtual void step() = 0;
};

/// Works on the tensors themselves.
class CpuRunner final : public Runner {
 public:
  explicit CpuRunner(const Ops& ops, int threads = 0);
  void put(const harness::Tensor& /*tensor*/) override {}
  void get(harness::Tensor& /*tensor*/) override {}
  void step() override;
  /// Of each call in the last step.
  [[nodiscard]] std::span<const double> microseconds() const { return microseconds_; }

 private:
  struct Prepared {
    const harness::Driver* driver;
    harness::Call call;
    ExecContext ctx;
  };
  std::vector<Prepared> calls_;
  harness::Tensor workspace_;
  std::vector<double> microseconds_;
};

/// Has copies of the tensors; a step is one graph. @throws UnsupportedError without CUDA
std::unique_ptr<Runner> make_cuda_runner(const Ops& ops);

/// Time of all the calls one behind the other, in graphs of 20 such chains, with as many sets of
/// the tensors in turn as it takes for a set to be cold again.
/// @throws UnsupportedError without CUDA
harness::Timing time_chain_on_cuda(const Ops& ops);
/// Kernels that the calls launch. @throws UnsupportedError without CUDA
int count_launches_on_cuda(const Ops& ops);

/// What a machine has left for tensors.
double free_host_bytes();
double free_cuda_bytes();

}  // namespace k3::layer
