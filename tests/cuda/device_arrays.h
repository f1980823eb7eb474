// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "cuda/common/error.h"
#include "harness/cuda_timing.h"
#include "harness/device.h"

namespace k3::harness {

/// Tests of device code; skipped where there is no device. Names of tests hold _cuda_.
class OnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
};

/// Elements in device memory, every byte 0xFF where no values are given.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count), buffer_(count * sizeof(T)) {
    K3_CUDA_CHECK(cudaMemset(buffer_.data(), 0xFF, count * sizeof(T)));
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    K3_CUDA_CHECK(
        cudaMemcpy(buffer_.data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  /// Waits for the device, and for the errors of its kernels.
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    K3_CUDA_CHECK(cudaGetLastError());
    K3_CUDA_CHECK(cudaDeviceSynchronize());
    K3_CUDA_CHECK(
        cudaMemcpy(values.data(), buffer_.data(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  CudaBuffer buffer_;
};

}  // namespace k3::harness
