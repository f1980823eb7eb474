// SPDX-License-Identifier: Apache-2.0
#include "harness/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

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

/// An optional output may have more rows than the call fills; it then gets as many as the file has.
void take_expected_rows(const ArgSpec& arg, const Tensor& expected, Tensor& added) {
  const auto& wanted = expected.shape();
  const auto& present = added.shape();
  if (arg.optional && !wanted.empty() && wanted.size() == present.size() &&
      wanted[0] != present[0] && std::equal(wanted.begin() + 1, wanted.end(), present.begin() + 1))
    added = Tensor::dense(added.dtype(), wanted);
}

/// Files hold fp8 codes as bytes.
void read_as_codes(Tensor& expected) {
  Tensor codes = Tensor::dense(DType::kF8E4M3, expected.shape());
  if (codes.storage_bytes() > 0)
    std::memcpy(codes.storage(), expected.storage(), codes.storage_bytes());
  expected = codes;
}

/// Adds the outputs of the call. @throws io::FileError where the file expects one that the call
/// does not make.
void add_outputs(const Driver& driver, const std::string& path, RunFile& file) {
  std::vector<std::string> wanted;
  for (const ArgSpec& arg : driver.args)
    if (arg.role == Role::kOutput && file.expected.contains(arg.name))
      wanted.emplace_back(arg.name);
  driver.add_outputs(file.bundle, wanted);
  for (const ArgSpec& arg : driver.args) {
    const auto expected = file.expected.find(arg.name);
    if (expected == file.expected.end()) continue;
    const auto added = file.bundle.tensors.find(arg.name);
    if (added == file.bundle.tensors.end())
      throw io::FileError(fmt::format("{} holds {}{} but not the arguments that make it", path,
                                      arg.name, arg.role == Role::kInPlace ? "_out" : ""));
    if (arg.role == Role::kOutput) take_expected_rows(arg, expected->second, added->second);
    if (expected->second.dtype() == DType::kU8 && added->second.dtype() == DType::kF8E4M3)
      read_as_codes(expected->second);
  }
}

}  // namespace

std::string op_of_file(const std::string& path) {
  const io::SafeTensors file = io::load(path);
  const auto op = file.metadata.find("op");
  return op == file.metadata.end() ? "" : op->second;
}

RunFile load_run_file(const Driver& driver, const std::string& path,
                      const std::map<std::string, std::string>& scalars) {
  const io::SafeTensors file = io::load(path);
  RunFile result;
  std::set<std::string> used;
  const auto take = [&](const std::string& in_file, const std::string& name, auto& to) {
    const auto entry = file.tensors.find(in_file);
    if (entry == file.tensors.end()) return;
    to[name] = to_tensor(entry->second);
    used.insert(in_file);
  };
  for (const ArgSpec& arg : driver.args) {
    const std::string name = arg.name;
    if (arg.role == Role::kOutput)
      take(name, name, result.expected);
    else
      take(name, name, result.bundle.tensors);
    if (arg.role == Role::kInPlace) take(name + "_out", name, result.expected);
  }
  for (const auto& [name, entry] : file.tensors)
    if (!used.contains(name)) result.ignored.push_back(name);
  read_scalars(driver, file.metadata, result.bundle);
  for (const auto& [name, value] : scalars) result.bundle.scalars[name] = value;
  add_outputs(driver, path, result);
  return result;
}

std::vector<Comparison> compare_expected(const RunFile& file, const Bundle& result,
                                         const Tolerance& tolerance) {
  std::vector<Comparison> comparisons;
  for (const auto& [name, expected] : file.expected)
    comparisons.push_back(compare(name, expected, result.tensors.at(name), tolerance));
  return comparisons;
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
        tensor.dtype() == DType::kF8E4M3 ? DType::kU8 : tensor.dtype(),
        tensor.shape(),
        {tensor.storage(), static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())}};
  io::save(path, entries, {{"op", driver.name}});
}

}  // namespace k3::harness
