// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3/error.h"
#include "k3/tensor.h"

namespace k3::io {

/// A file that is not a safetensors file, or lies about itself. The text names the file and the
/// rule.
class FileError : public Error {
 public:
  using Error::Error;
};

struct Entry {
  DType dtype = DType::kNone;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< into `owner`, or into what parse was given
};

/// A parsed file. Entries point into `owner`.
struct SafeTensors {
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
  std::shared_ptr<const void> owner;
};

/// Reads the whole file into memory. @throws FileError
SafeTensors load(const std::string& path);

/// Parses bytes in memory; the caller keeps them alive. `name` stands in error texts.
/// Checks: length against the bytes there, header cap of 100 MB, JSON depth and types, known
/// dtypes, shape x dtype = bytes without overflow, ranges inside the file, in order, no overlap, no
/// hole.
SafeTensors parse(std::span<const std::byte> bytes, const std::string& name);

/// Writes the file whole or not at all, through a new file beside it and a rename. @throws
/// FileError
void save(const std::string& path, const std::map<std::string, Entry>& tensors,
          const std::map<std::string, std::string>& metadata);

}  // namespace k3::io
