// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with FileError, or parse into tensors whose bytes all lie in the
// input and have the length that shape and dtype ask for.
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "io/safetensors.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_entry(const k3::io::Entry& entry, std::span<const std::byte> file) {
  const std::uint64_t bytes = std::accumulate(
      entry.shape.begin(), entry.shape.end(), std::uint64_t{k3::size_of(entry.dtype)},
      [](std::uint64_t product, std::int64_t size) { return product * std::uint64_t(size); });
  require(entry.bytes.size() == bytes);
  require(entry.bytes.data() >= file.data());
  require(entry.bytes.data() + entry.bytes.size() <= file.data() + file.size());
  // Reads every byte under the address sanitizer.
  unsigned sum = 0;
  for (const std::byte byte : entry.bytes) sum += static_cast<unsigned>(byte);
  require(sum <= 255U * entry.bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const k3::io::SafeTensors parsed = k3::io::parse(file, "input");
    for (const auto& [name, entry] : parsed.tensors) check_entry(entry, file);
  } catch (const k3::io::FileError&) {
  }
  return 0;
}
