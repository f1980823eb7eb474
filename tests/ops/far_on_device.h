// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <string>
#include <vector>

#include "tests/ops/machines.h"

namespace k3::harness {

/// Runs the op with the rows of the first axis of the named tensors `pitch` elements apart in
/// device memory, where the last ones lie past 2^31, and expects the bits of the dense call.
inline void expect_same_far_apart(const char* op, const Bundle& dense,
                                  const std::vector<std::string>& names, std::int64_t pitch,
                                  const std::string& variant) {
  const Bundle expected = run_on(RunOn::kCuda, op, dense, variant);
  const DeviceBundle tensors(dense);
  DeviceCall call = {find_driver(op), tensors.call(), variant};
  const auto offset_of = [&](const Tensor& t, std::int64_t row) {
    return static_cast<std::size_t>(row * pitch) * size_of(t.dtype());
  };
  std::list<DeviceMemory> memories;
  for (const std::string& name : names) {
    const Tensor& t = dense.tensors.at(name);
    const std::int64_t rows = t.shape()[0];
    DeviceMemory& memory = memories.emplace_back(offset_of(t, rows));
    if (!memory.valid()) GTEST_SKIP() << "no device memory of " << offset_of(t, rows) << " bytes";
    for (std::int64_t row = 0; row < rows; ++row)
      memory.write(offset_of(t, row), piece(t, row, rows));
    call.call.tensors.at(name).data = memory.data();
    call.call.tensors.at(name).strides[0] = pitch;
  }
  run_on_device({&call, 1});
  auto memory = memories.begin();
  for (const std::string& name : names) {
    const Tensor& t = expected.tensors.at(name);
    const std::int64_t rows = t.shape()[0];
    std::vector<std::byte> seen(t.storage_bytes() / static_cast<std::size_t>(rows));
    for (std::int64_t row = 0; row < rows; ++row) {
      memory->read(offset_of(t, row), seen);
      EXPECT_TRUE(std::ranges::equal(seen, piece(t, row, rows))) << name << row << " " << variant;
    }
    ++memory;
  }
}

}  // namespace k3::harness
