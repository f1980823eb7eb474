// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <optional>

#include "cli/process.h"
#include "io/safetensors.h"
#include "k3/device.h"

namespace k3::cli {
namespace {

std::string fixed(double value) { return fmt::format("{:.1f}", value); }

/// Of bytes or operations per microsecond, in units of 1e9 a second.
double giga_per_second(double amount, double microseconds) { return amount / microseconds * 1e-3; }

std::optional<std::string> python_with_matplotlib() {
  const std::string beside_sources = K3_SOURCE_DIR "/.venv/bin/python";
  for (const std::string& python :
       {std::string("python3"), std::string("./.venv/bin/python"), beside_sources})
    if (output_of({python, "-c", "import matplotlib"}).status == 0) return python;
  return std::nullopt;
}

void require_matplotlib() {
  if (!python_with_matplotlib())
    throw UnsupportedError(
        "--plot needs matplotlib: python3 and .venv/bin/python lack it (tools/setup.sh installs "
        "it)");
}

/// Draws a report that stands in a JSON file.
void plot(const std::string& json_path, const std::string& svg_path) {
  const auto python = python_with_matplotlib();
  if (!python) require_matplotlib();
  for (const std::string& script :
       {std::string(K3_SOURCE_DIR "/tools/plot_bench.py"), std::string("tools/plot_bench.py")}) {
    if (!std::filesystem::exists(script)) continue;
    if (run_program({*python, script, json_path, svg_path}) != 0)
      throw io::FileError(svg_path + ": tools/plot_bench.py could not draw it");
    return;
  }
  throw UnsupportedError("--plot needs tools/plot_bench.py of the source tree");
}

}  // namespace

std::string shape_text(const std::map<std::string, std::int64_t>& shape) {
  std::string text;
  for (const auto& [name, size] : shape)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, size);
  return text;
}

void print_report(const BenchReport& report) {
  fmt::print("{}: read+write {:.1f} GB/s, fp32 FMA {:.0f} GFLOP/s", report.machine,
             report.ceilings.read_write_gbps, report.ceilings.fma_gflops);
  if (report.backend == Backend::kCuda)
    fmt::print(", bf16 tensor cores {:.0f} GFLOP/s, empty launch {:.2f} us\n",
               report.ceilings.tensor_gflops, report.ceilings.empty_launch_us);
  else
    fmt::print(", {} threads\n", report.threads);
  Table table({{"op"},
               {"backend"},
               {"variant"},
               {"shape"},
               {"median us", true},
               {"p10 us", true},
               {"p90 us", true},
               {"MB", true},
               {"MFLOP", true},
               {"GB/s", true},
               {"GFLOP/s", true},
               {"floor us", true},
               {"% of floor", true},
               {"peers us"}});
  for (const BenchRow& row : report.rows) {
    const double median = row.timing.median_us;
    std::vector<std::string> peers;
    for (const auto& [name, us] : row.peer) peers.push_back(fmt::format("{} {:.1f}", name, us));
    table.add(
        {row.op, name_of(row.variant.backend), row.variant.name, shape_text(row.shape),
         fixed(median), fixed(row.timing.p10_us), fixed(row.timing.p90_us),
         fmt::format("{:.3f}", row.cost.bytes * 1e-6), fmt::format("{:.2f}", row.cost.flops * 1e-6),
         fixed(giga_per_second(row.cost.bytes, median)),
         fixed(giga_per_second(row.cost.flops, median)), fmt::format("{:.2f}", row.timing.floor_us),
         fixed(row.percent_of_floor()), fmt::format("{}", fmt::join(peers, "; "))});
  }
  table.print();
}

nlohmann::ordered_json to_json(const BenchReport& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchRow& row : report.rows)
    rows.push_back({{"op", row.op},
                    {"backend", name_of(row.variant.backend)},
                    {"variant", row.variant.name},
                    {"shape", row.shape},
                    {"median_us", row.timing.median_us},
                    {"p10_us", row.timing.p10_us},
                    {"p90_us", row.timing.p90_us},
                    {"bytes", std::llround(row.cost.bytes)},
                    {"flops", std::llround(row.cost.flops)},
                    {"floor_us", row.timing.floor_us},
                    {"percent_of_floor", row.percent_of_floor()},
                    {"peer", row.peer}});
  nlohmann::ordered_json json = {
      {"machine", report.machine},
      {"date", fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)))},
      {"commit", commit()}};
  if (report.backend == Backend::kCpu) json["threads"] = report.threads;
  json["ceilings"] = {{"read_write_gbps", report.ceilings.read_write_gbps},
                      {"fma_gflops", report.ceilings.fma_gflops},
                      {"tensor_gflops", report.ceilings.tensor_gflops},
                      {"empty_launch_us", report.ceilings.empty_launch_us}};
  json["rows"] = std::move(rows);
  return json;
}

void require_writable(const ReportFiles& files) {
  if (files.any() && files.json_path == files.svg_path)
    throw UsageError("--json and --plot name the same file");
  require_writable(files.json_path);
  require_writable(files.svg_path);
  if (!files.svg_path.empty()) require_matplotlib();
}

void save(const nlohmann::ordered_json& report, const ReportFiles& files) {
  if (!files.any()) return;
  const std::string text = report.dump(2) + "\n";
  if (!files.json_path.empty()) write_text(files.json_path, text);
  if (files.svg_path.empty()) return;
  if (!files.json_path.empty()) return plot(files.json_path, files.svg_path);
  // It passes through a temporary file.
  const std::string temporary = fmt::format("{}.{}.json", files.svg_path, ::getpid());
  write_text(temporary, text);
  try {
    plot(temporary, files.svg_path);
  } catch (...) {
    std::filesystem::remove(temporary);
    throw;
  }
  std::filesystem::remove(temporary);
}

}  // namespace k3::cli
