// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/driver.h"
#include "harness/runner.h"
#include "k3/capability.h"
#include "k3/error.h"

/// What several subcommands need.
namespace k3::cli {

/// A command line that makes no sense: exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// @throws UsageError listing the ops
const harness::Driver& driver_named(const std::string& op);
/// All ops where no name is given.
std::vector<const harness::Driver*> drivers_named(const std::vector<std::string>& ops);

/// One kernel of an op, whatever the archs it is compiled for.
struct Variant {
  Backend backend = Backend::kCpu;
  std::string name;

  [[nodiscard]] harness::RunOn run_on() const {
    return backend == Backend::kCuda ? harness::RunOn::kCuda : harness::RunOn::kCpu;
  }
};

/// The variants of an op in this build, in order of preference; kAuto stands for every backend.
std::vector<Variant> variants_of(const std::string& op, Backend backend);

/// "auto", "cpu" or "cuda".
Backend backend_named(const std::string& name);
/// @throws UnsupportedError where CUDA is asked for by name and cannot be used.
void require_usable(Backend backend);

/// The commit that was built, with "-dirty" where the tree had changes; empty outside a checkout.
std::string commit();

/// What runs an op: "cpu", "cuda" or "oracle"; "auto" is CUDA where the op has a kernel there and
/// the device can be used. @throws UnsupportedError where CUDA is asked for and cannot be used.
harness::RunOn run_on(const harness::Driver& driver, const std::string& backend);
const char* name_of(harness::RunOn on);

/// To stderr. Never throws: an error must not hide behind a closed stderr.
void print_error(const std::string& text) noexcept;

void print_json(const nlohmann::ordered_json& value);
/// @throws io::FileError
void write_text(const std::string& path, const std::string& text);
/// Asked before the work is done; an empty path passes. @throws io::FileError
void require_writable(const std::string& path);

/// Columns as wide as their widest cell; numbers to the right.
class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// One line on stderr that overwrites itself; silent where stderr is no terminal.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& text);
  void clear();

 private:
  bool on_terminal_;
  bool shown_ = false;
};

}  // namespace k3::cli
