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

/// @throws UnsupportedError where no Python with matplotlib is found
void require_matplotlib();
/// Draws a report that stands in a JSON file. @throws UnsupportedError, io::FileError
void plot(const std::string& json_path, const std::string& svg_path);

}  // namespace k3::cli
