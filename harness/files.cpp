// SPDX-License-Identifier: Apache-2.0
#include "harness/files.h"

#include <algorithm>
#include <cstring>

#include "io/safetensors.h"

namespace k3::harness {
namespace {

/// Names that recorded files use for a scalar of ours.
struct Alias {
  const char* file;
  const char* scalar;
};
constexpr Alias kAliases[] = {{"round_after_silu", "round_conv"}};

Tensor to_tensor(const io::Entry& entry) {
  Tensor tensor = Tensor::dense(entry.dtype, entry.shape);
  if (!entry.bytes.empty()) std::memcpy(tensor.storage(), entry.bytes.data(), entry.bytes.size());
  return tensor;
}

void read_scalars(const Driver& driver, const std::map<std::string, std::string>& metadata,
                  Bundle& bundle) {
  for (const char* name : driver.scalars)
    if (const auto found = metadata.find(name); found != metadata.end())
      bundle.scalars[name] = found->second;
  for (const Alias& alias : kAliases) {
    const bool known = std::any_of(driver.scalars.begin(), driver.scalars.end(),
                                   [&](const char* s) { return std::string(s) == alias.scalar; });
    const auto found = metadata.find(alias.file);
    if (known && found != metadata.end()) bundle.scalars.try_emplace(alias.scalar, found->second);
  }
}

}  // namespace

RunFile load_run_file(const Driver& driver, const std::string& path) {
  const io::SafeTensors file = io::load(path);
  RunFile result;
  std::vector<std::string> wanted;
  for (const ArgSpec& arg : driver.args) {
    const std::string name = arg.name;
    const auto entry = file.tensors.find(name);
    if (arg.role == Role::kOutput) {
      if (entry == file.tensors.end()) continue;
      result.expected[name] = to_tensor(entry->second);
      wanted.push_back(name);
      continue;
    }
    if (entry != file.tensors.end()) result.bundle.tensors[name] = to_tensor(entry->second);
    if (arg.role != Role::kInPlace) continue;
    if (const auto after = file.tensors.find(name + "_out"); after != file.tensors.end())
      result.expected[name] = to_tensor(after->second);
  }
  read_scalars(driver, file.metadata, result.bundle);
  driver.add_outputs(result.bundle, wanted);
  return result;
}

void save_outputs(const Driver& driver, const Bundle& bundle, const std::string& path) {
  std::map<std::string, Tensor> dense;
  for (const ArgSpec& arg : driver.args) {
    const auto found = bundle.tensors.find(arg.name);
    if (arg.role == Role::kInput || found == bundle.tensors.end()) continue;
    const Tensor& tensor = found->second;
    Tensor& copy = dense[std::string(arg.name) + (arg.role == Role::kInPlace ? "_out" : "")];
    copy = Tensor::dense(tensor.dtype(), tensor.shape());
    if (tensor.is_dense() && tensor.numel() > 0) {
      std::memcpy(copy.storage(), tensor.view().data,
                  static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype()));
      continue;
    }
    for (std::int64_t i = 0; i < tensor.numel(); ++i) copy.set(i, tensor.get(i));
  }
  std::map<std::string, io::Entry> entries;
  for (const auto& [name, tensor] : dense)
    entries[name] = {
        tensor.dtype(),
        tensor.shape(),
        {tensor.storage(), static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())}};
  io::save(path, entries, {{"op", driver.name}});
}

}  // namespace k3::harness
