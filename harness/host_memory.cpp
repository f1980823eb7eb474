// SPDX-License-Identifier: Apache-2.0
#include "harness/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "k3/error.h"

namespace k3::harness {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kAlignment = 64;  // of a Tensor's storage
constexpr std::size_t kMisalignment = 16;
constexpr std::byte kGuard{0xC3};

Tensor guard_block(std::size_t bytes) {
  Tensor block = Tensor::dense(DType::kU8, {static_cast<std::int64_t>(bytes)});
  block.fill_bytes(kGuard);
  return block;
}

}  // namespace

HostWorkspace::HostWorkspace(std::size_t bytes, std::byte fill)
    : block_(guard_block(bytes + kGuardBytes)), bytes_(bytes) {
  std::memset(block_.storage(), static_cast<int>(fill), bytes);
}

Workspace HostWorkspace::get() {
  return bytes_ == 0 ? Workspace{} : Workspace{block_.storage(), bytes_};
}

void HostWorkspace::check() const {
  const std::byte* guard = block_.storage() + bytes_;
  const auto* changed =
      std::find_if(guard, guard + kGuardBytes, [](std::byte b) { return b != kGuard; });
  if (changed != guard + kGuardBytes)
    throw Error(
        fmt::format("stray write {} bytes behind a workspace of {}", changed - guard, bytes_));
}

GuardedBundle::GuardedBundle(const Bundle& bundle) : bundle_(bundle) {
  std::size_t total = 0;
  for (const auto& [name, tensor] : bundle.tensors) {
    const std::size_t offset =
        (total + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment + kMisalignment;
    parts_.push_back({name, offset, tensor.storage_bytes()});
    total = offset + tensor.storage_bytes();
  }
  block_ = guard_block(total + kGuardBytes);
  for (const Part& part : parts_)
    if (part.bytes > 0)
      std::memcpy(block_.storage() + part.offset, bundle.tensors.at(part.name).storage(),
                  part.bytes);
}

Call GuardedBundle::call(const Driver& driver) {
  Call call;
  call.scalars = bundle_.scalars;
  for (const ArgSpec& arg : driver.args)
    for (const Part& part : parts_)
      if (part.name == arg.name)
        call.tensors[part.name] =
            bundle_.tensors.at(part.name).view_at(block_.storage() + part.offset, {});
  return call;
}

void GuardedBundle::check_guard(const Part* before, const Part* after) const {
  const std::size_t begin = before == nullptr ? 0 : before->offset + before->bytes;
  const std::size_t end = after == nullptr ? block_.storage_bytes() : after->offset;
  for (std::size_t i = begin; i < end; ++i)
    if (block_.storage()[i] != kGuard)
      throw Error(fmt::format("stray write {} bytes past the end of {}, {} bytes ahead of {}",
                              i - begin, before == nullptr ? "nothing" : before->name, end - i,
                              after == nullptr ? "nothing" : after->name));
}

void GuardedBundle::read_back(Bundle& bundle) const {
  const Part* before = nullptr;
  for (const Part& part : parts_) {
    check_guard(before, &part);
    if (part.bytes > 0)
      std::memcpy(bundle.tensors.at(part.name).storage(), block_.storage() + part.offset,
                  part.bytes);
    before = &part;
  }
  check_guard(before, nullptr);
}

}  // namespace k3::harness
