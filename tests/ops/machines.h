// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/device.h"
#include "harness/runner.h"
#include "k3/capability.h"

/// The variants of an op, and its results byte for byte.
namespace k3::harness {

/// A backend, and one variant of the op under test. Other ops of a test take their own choice.
struct Machine {
  RunOn on = RunOn::kCpu;
  std::string variant;
};

/// Every variant of the op in this build.
inline std::vector<Machine> machines_of(const std::string& op) {
  std::vector<Machine> machines;
  std::set<std::string> seen;
  for (const Capability& row : capabilities())
    if (row.op == op && seen.insert(name_of(row.backend) + row.variant).second)
      machines.push_back({row.backend == Backend::kCuda ? RunOn::kCuda : RunOn::kCpu, row.variant});
  return machines;
}

inline std::vector<std::string> variants_of(const std::string& op, RunOn on) {
  std::vector<std::string> variants;
  for (const Machine& machine : machines_of(op))
    if (machine.on == on) variants.push_back(machine.variant);
  return variants;
}

inline std::string name_of(const Machine& machine) {
  return (machine.on == RunOn::kCuda ? "on_cuda_" : "on_cpu_") + machine.variant;
}

inline void PrintTo(const Machine& machine, std::ostream* os) { *os << name_of(machine); }

inline Bundle run_on(RunOn on, const char* op, const Bundle& bundle,
                     const std::string& variant = "") {
  Bundle result = bundle.clone();
  run_once(*find_driver(op), result, {.on = on, .variant = variant});
  return result;
}

/// Tests of an op, a Machine at a time; skipped where there is no device for it.
class MachineTest : public testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    if (GetParam().on != RunOn::kCuda) return;
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
  /// The op under test, by its variant.
  static Bundle run_tested(const char* op, const Bundle& bundle) {
    return run_on(GetParam().on, op, bundle, GetParam().variant);
  }
};

/// Piece `index` of `count` equal ones of a dense tensor.
inline std::span<const std::byte> piece(const Tensor& tensor, std::int64_t index,
                                        std::int64_t count) {
  const std::size_t bytes = tensor.storage_bytes() / static_cast<std::size_t>(count);
  return {tensor.storage() + static_cast<std::size_t>(index) * bytes, bytes};
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

/// The first tensor whose storages differ, gaps included, and where; or empty.
inline std::string difference(const Bundle& a, const Bundle& b) {
  for (const auto& [name, tensor] : a.tensors) {
    const Tensor& other = b.tensors.at(name);
    const std::byte* const end = tensor.storage() + tensor.storage_bytes();
    if (tensor.storage_bytes() != other.storage_bytes()) return name + " has another size";
    const auto at = std::mismatch(tensor.storage(), end, other.storage()).first;
    if (at != end) return name + " at byte " + std::to_string(at - tensor.storage());
  }
  return "";
}

/// On every machine that is here.
inline void expect_variants_give_the_same_bits(const char* op, const Bundle& input) {
  const Bundle expected = run_on(RunOn::kCpu, op, input);
  for (const Machine& machine : machines_of(op)) {
    if (machine.on == RunOn::kCuda && cuda_unusable() != nullptr) continue;
    EXPECT_EQ(difference(expected, run_on(machine.on, op, input, machine.variant)), "")
        << name_of(machine);
  }
}

}  // namespace k3::harness
