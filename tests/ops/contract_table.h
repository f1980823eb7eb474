// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "harness/driver.h"
#include "k3/error.h"

namespace k3::harness {

/// One rule of a contract, broken: `edit` spoils a valid call, and the error must name `argument`.
struct Violation {
  const char* name;
  const char* argument;
  std::function<void(Call&)> edit;
};

inline void PrintTo(const Violation& violation, std::ostream* os) { *os << violation.name; }

/// Runs the spoilt call on the CPU; expects ContractError for the argument, and every byte of every
/// tensor as it was. A workspace of any size stands ready, so that only the contract can refuse.
inline void expect_refused(const Driver& driver, Bundle bundle, const Violation& violation) {
  Call call = host_call(driver, bundle);
  violation.edit(call);
  const Bundle before = bundle.clone();
  std::vector<std::byte> scratch(std::size_t{64} << 20);
  auto* aligned = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  ExecContext ctx;
  ctx.workspace = {aligned, scratch.size() - 64};
  try {
    driver.run(call, ctx);
    ADD_FAILURE() << violation.name << ": the call was accepted";
  } catch (const ContractError& e) {
    EXPECT_EQ(e.argument(), violation.argument) << e.what();
    EXPECT_EQ(e.op(), driver.name);
    EXPECT_NE(std::string(e.what()).find("got "), std::string::npos) << e.what();
  }
  for (const auto& [name, tensor] : bundle.tensors)
    EXPECT_EQ(
        std::memcmp(tensor.storage(), before.tensors.at(name).storage(), tensor.storage_bytes()), 0)
        << violation.name << ": " << name << " was touched";
}

// Common edits.

inline std::function<void(Call&)> absent(const char* name) {
  return [=](Call& call) { call.tensors.erase(name); };
}

inline std::function<void(Call&)> with_dtype(const char* name, DType dtype) {
  return [=](Call& call) { call.tensors.at(name).dtype = dtype; };
}

inline std::function<void(Call&)> with_size(const char* name, int axis, std::int64_t size) {
  return [=](Call& call) { call.tensors.at(name).shape[axis] = size; };
}

inline std::function<void(Call&)> with_stride(const char* name, int axis, std::int64_t stride) {
  return [=](Call& call) { call.tensors.at(name).strides[axis] = stride; };
}

inline std::function<void(Call&)> with_rank(const char* name, int rank) {
  return [=](Call& call) { call.tensors.at(name).rank = rank; };
}

inline std::function<void(Call&)> with_scalar(const char* name, const char* value) {
  return [=](Call& call) { call.scalars[name] = value; };
}

inline std::function<void(Call&)> shifted(const char* name, std::ptrdiff_t bytes) {
  return [=](Call& call) {
    TensorView& view = call.tensors.at(name);
    view.data = static_cast<std::byte*>(view.data) + bytes;
  };
}

inline std::function<void(Call&)> null_data(const char* name) {
  return [=](Call& call) { call.tensors.at(name).data = nullptr; };
}

inline std::function<void(Call&)> aliasing(const char* name, const char* other) {
  return [=](Call& call) { call.tensors.at(name).data = call.tensors.at(other).data; };
}

inline std::function<void(Call&)> on_cuda(const char* name) {
  return [=](Call& call) { call.tensors.at(name).device = {DeviceKind::kCuda, 0}; };
}

}  // namespace k3::harness
