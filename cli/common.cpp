// SPDX-License-Identifier: Apache-2.0
#include "cli/common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cli/process.h"
#include "harness/device.h"
#include "io/safetensors.h"
#include "k3_commit.h"

namespace k3::cli {

const harness::Driver& driver_named(const std::string& op) {
  if (const harness::Driver* driver = harness::find_driver(op)) return *driver;
  std::vector<std::string> names;
  for (const harness::Driver* driver : harness::drivers()) names.emplace_back(driver->name);
  throw UsageError(fmt::format("no op is called '{}'; there are {}", op, fmt::join(names, ", ")));
}

std::vector<const harness::Driver*> drivers_named(const std::vector<std::string>& ops) {
  std::vector<const harness::Driver*> chosen;
  for (const std::string& op : ops) chosen.push_back(&driver_named(op));
  if (ops.empty()) chosen.assign(harness::drivers().begin(), harness::drivers().end());
  return chosen;
}

std::vector<Variant> variants_of(const std::string& op, Backend backend) {
  std::vector<Variant> variants;
  for (const Capability& row : capabilities()) {
    if (row.op != op || (backend != Backend::kAuto && row.backend != backend)) continue;
    const bool seen = std::any_of(variants.begin(), variants.end(), [&](const Variant& v) {
      return v.backend == row.backend && v.name == row.variant;
    });
    if (!seen) variants.push_back({row.backend, row.variant});
  }
  return variants;
}

Backend backend_named(const std::string& name) {
  if (name == "cpu") return Backend::kCpu;
  if (name == "cuda") return Backend::kCuda;
  return Backend::kAuto;
}

void require_usable(Backend backend) {
  if (backend != Backend::kCuda) return;
  if (const char* why = harness::cuda_unusable())
    throw UnsupportedError(std::string("--backend cuda: ") + why);
}

harness::RunOn run_on(const harness::Driver& driver, const std::string& backend) {
  if (backend == "oracle") return harness::RunOn::kOracle;
  if (backend == "cpu") return harness::RunOn::kCpu;
  require_usable(backend_named(backend));
  const bool on_cuda = backend == "cuda" || (harness::cuda_unusable() == nullptr &&
                                             !variants_of(driver.name, Backend::kCuda).empty());
  return on_cuda ? harness::RunOn::kCuda : harness::RunOn::kCpu;
}

const char* name_of(harness::RunOn on) {
  switch (on) {
    case harness::RunOn::kCpu:
      return "cpu";
    case harness::RunOn::kCuda:
      return "cuda";
    case harness::RunOn::kOracle:
      return "oracle";
  }
  return "unknown";
}

void print_error(const std::string& text) noexcept {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string commit() { return K3_COMMIT; }

void print_json(const nlohmann::ordered_json& value) {
  fmt::print("{}\n", value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void write_text(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code error;
  // What is no file (a device, a pipe) is written to; a link stays and its target is replaced.
  const bool in_place = fs::exists(path, error) && !fs::is_regular_file(path, error);
  fs::path target = path;
  if (fs::is_regular_file(path, error))
    target = fs::canonical(path, error);
  else if (!in_place && fs::is_symlink(path, error))
    target = target.parent_path() / fs::read_symlink(path, error);
  const fs::path written =
      in_place ? target : fs::path(fmt::format("{}.{}.tmp", target.string(), ::getpid()));
  std::ofstream file(written, std::ios::binary);
  file << text;
  file.close();
  error.clear();
  if (file && !in_place) fs::rename(written, target, error);
  if (file && !error) return;
  if (!in_place) fs::remove(written, error);
  throw io::FileError(path + ": cannot write");
}

void require_writable(const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path target(path);
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  if (std::filesystem::is_directory(target) || !std::filesystem::is_directory(folder) ||
      ::access(folder.c_str(), W_OK) != 0)
    throw io::FileError(path + ": cannot write there");
}

void Table::print() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = columns_[c].title.size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  const auto print_row = [&](const auto& cell) {
    std::string line;
    for (std::size_t c = 0; c < columns_.size(); ++c)
      line += columns_[c].right ? fmt::format("{:>{}}  ", cell(c), widths[c])
                                : fmt::format("{:<{}}  ", cell(c), widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  };
  print_row([&](std::size_t c) { return columns_[c].title; });
  for (const auto& row : rows_) print_row([&](std::size_t c) { return row[c]; });
}

Progress::Progress() : on_terminal_(::isatty(STDERR_FILENO) != 0) {}

void Progress::show(const std::string& text) {
  if (!on_terminal_) return;
  print_error("\r\033[K" + text);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  print_error("\r\033[K");
  shown_ = false;
}

}  // namespace k3::cli
