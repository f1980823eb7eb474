// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/driver.h"
#include "k3/context.h"

/// Host memory with guard bytes, for runs that must not write outside what they were given.
namespace k3::harness {

/// Scratch memory of exactly the bytes asked for, 64-byte aligned, filled with NaN or another byte,
/// with guard bytes behind it.
class HostWorkspace {
 public:
  explicit HostWorkspace(std::size_t bytes, std::byte fill = std::byte{0xFF});
  [[nodiscard]] Workspace get();
  /// @throws Error where a guard byte has changed.
  void check() const;

 private:
  Tensor block_;
  std::size_t bytes_;
};

/// The storages of a bundle in one block, guard bytes before and after each. They stand on odd
/// multiples of 16 bytes: what the ops' contracts ask of a pointer, and no more.
class GuardedBundle {
 public:
  explicit GuardedBundle(const Bundle& bundle);
  /// The call over the block.
  Call call(const Driver& driver);
  /// Copies the storages back. @throws Error naming the tensor beside which a guard byte has
  /// changed.
  void read_back(Bundle& bundle) const;

 private:
  struct Part {
    std::string name;
    std::size_t offset;
    std::size_t bytes;
  };
  /// The bytes between two neighbours; null at the ends of the block.
  void check_guard(const Part* before, const Part* after) const;

  const Bundle& bundle_;
  std::vector<Part> parts_;
  Tensor block_;
};

}  // namespace k3::harness
