// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/common.h"
#include "harness/runner.h"

namespace k3::cli {

struct BenchRow {
  std::string op;
  Variant variant;
  std::map<std::string, std::int64_t> shape;
  harness::Timing timing;
  harness::Cost cost;
  std::map<std::string, double> peer;  ///< microseconds of others, measured elsewhere

  [[nodiscard]] double percent_of_floor() const {
    return 100.0 * timing.floor_us / timing.median_us;
  }
};

/// All rows of one backend on this machine.
struct BenchReport {
  Backend backend = Backend::kCpu;
  std::string machine;
  int threads = 0;  ///< CPU only
  harness::Ceilings ceilings;
  std::vector<BenchRow> rows;
};

/// "B=64,H=12": how a peers file names a shape.
std::string shape_text(const std::map<std::string, std::int64_t>& shape);

void print_report(const BenchReport& report);
nlohmann::ordered_json to_json(const BenchReport& report);

/// Where a report goes; empty: nowhere.
struct ReportFiles {
  std::string json_path;
  std::string svg_path;

  [[nodiscard]] bool any() const { return !json_path.empty() || !svg_path.empty(); }
};
/// Asked before the work is done.
/// @throws UsageError, io::FileError, UnsupportedError where no Python with matplotlib is found
void require_writable(const ReportFiles& files);
/// Writes and draws a report as `to_json` makes it. @throws UnsupportedError, io::FileError
void save(const nlohmann::ordered_json& report, const ReportFiles& files);

}  // namespace k3::cli
