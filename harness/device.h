// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "harness/runner.h"

/// The CUDA half of the runner. In a build without CUDA each function throws UnsupportedError.
namespace k3::harness {

/// Null where the current CUDA device, on which everything here runs, can be used; else the reason,
/// good until the next call of this thread.
const char* cuda_unusable();

double run_once_on_device(const Driver& driver, Bundle& bundle, const RunOptions& options);
Timing time_op_on_device(const Driver& driver, const Bundle& bundle, const RunOptions& options);
Ceilings measure_cuda_ceilings();

/// Device memory for what no bundle can hold.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);  ///< not valid() where there is not so much
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] bool valid() const { return data_ != nullptr; }
  [[nodiscard]] std::byte* data() const { return data_; }
  void fill(std::byte byte);
  void write(std::size_t offset, std::span<const std::byte> bytes);
  void read(std::size_t offset, std::span<std::byte> bytes) const;

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

/// The tensors of a bundle on the device, with guard bytes around each, for calls that find there
/// what earlier ones left.
class DeviceBundle {
 public:
  explicit DeviceBundle(const Bundle& bundle);
  ~DeviceBundle();
  DeviceBundle(const DeviceBundle&) = delete;
  DeviceBundle& operator=(const DeviceBundle&) = delete;

  /// The views there, and the scalars.
  [[nodiscard]] const Call& call() const;
  /// New bytes for every tensor. The bundle has the names and the storage sizes of the first one.
  void upload(const Bundle& bundle);
  /// All tensors into a bundle of that kind. @throws Error naming the tensor beside which a guard
  /// byte has changed.
  void download(Bundle& bundle) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct DeviceCall {
  const Driver* driver;
  Call call;
  std::string variant;  ///< forced by name; empty = select() decides
};

/// What calls find in scratch memory, and whether they share it as the layers of a model do, the
/// largest of theirs, or have one each.
struct Workspaces {
  bool shared = false;
  std::byte fill{0xFF};  ///< every byte of it, before the first call
};

/// Enqueues the calls one behind the other in one stream and waits for the last. Returns
/// microseconds from the first to there.
double run_on_device(std::span<const DeviceCall> calls, const Workspaces& workspaces = {});

/// The same as a graph. An allocation or a wait inside a call fails its capture.
class DeviceGraph {
 public:
  explicit DeviceGraph(std::span<const DeviceCall> calls, const Workspaces& workspaces = {});
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  void replay();  ///< and waits

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace k3::harness
