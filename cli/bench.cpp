// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "cli/bench_report.h"
#include "cli/commands.h"
#include "harness/device.h"
#include "harness/limits.h"
#include "harness/machine.h"
#include "io/safetensors.h"
#include "k3/device.h"

namespace k3::cli {
namespace {

using harness::BenchShape;
using harness::Driver;
using nlohmann::json;

constexpr const char* kDefaultPeers = "bench/peers.json";

struct BenchRequest {
  std::vector<std::string> ops;
  std::string backend = "auto";
  std::string shapes = "quick";
  int threads = 0;
  ReportFiles files;
  std::string peers_path;
};

harness::Level level_named(const std::string& name) {
  if (name == "k3") return harness::Level::kK3;
  return name == "full" ? harness::Level::kFull : harness::Level::kQuick;
}

/// Figures that others published or that were measured elsewhere:
/// {machine: {op: {shape: {name with date: microseconds}}}}.
class Peers {
 public:
  explicit Peers(const std::string& path) : path_(path) {
    if (path_.empty()) {
      if (!std::filesystem::exists(kDefaultPeers)) return;
      path_ = kDefaultPeers;
    }
    std::ifstream file(path_);
    if (!file) throw io::FileError(path_ + ": cannot open");
    figures_ = json::parse(file, nullptr, false);
    if (!figures_.is_object()) throw io::FileError(path_ + ": not a JSON object");
  }

  [[nodiscard]] std::map<std::string, double> find(const std::string& machine,
                                                   const std::string& op,
                                                   const std::string& shape) const {
    const json* at = &figures_;
    for (const std::string& key : {machine, op, shape}) {
      if (!at->is_object() || !at->contains(key)) return {};
      at = &(*at)[key];
    }
    try {
      return at->get<std::map<std::string, double>>();
    } catch (const json::exception&) {
      throw io::FileError(
          fmt::format("{}: {} {} {} is not an object of numbers", path_, machine, op, shape));
    }
  }

 private:
  std::string path_;
  json figures_ = json::object();
};

/// Times one shape on every variant. A variant that refuses the shape has no row.
void bench_shape(const Driver& driver, const BenchShape& shape, const BenchRequest& request,
                 const Peers& peers, harness::Limits& limits, BenchReport& report) {
  const harness::Bundle bundle = shape.make();
  // A GPU works on copies of its own.
  const bool writes_bundle = report.backend == Backend::kCpu;
  const BenchShape prepared = {shape.sizes,
                               [&] { return writes_bundle ? bundle.clone() : bundle; }};
  for (const Variant& variant : variants_of(driver.name, report.backend)) {
    BenchRow row;
    row.op = driver.name;
    row.variant = variant;
    row.shape = shape.sizes;
    row.cost = driver.cost(bundle);
    try {
      row.timing = harness::time_op(
          driver, prepared,
          {.on = variant.run_on(), .threads = request.threads, .variant = variant.name}, limits);
    } catch (const UnsupportedError&) {
      continue;
    }
    row.peer = peers.find(report.machine, driver.name, shape_text(shape.sizes));
    report.rows.push_back(std::move(row));
  }
}

BenchReport bench_backend(Backend backend, const std::vector<const Driver*>& drivers,
                          const BenchRequest& request, const Peers& peers) {
  BenchReport report;
  report.backend = backend;
  report.machine = harness::machine_name(backend);
  Progress progress;
  progress.show("measuring this machine's limits");
  if (backend == Backend::kCpu)
    report.threads = request.threads > 0 ? request.threads : cpu_info().threads;
  harness::Limits limits(Variant{.backend = backend}.run_on(), request.threads);
  for (const Driver* driver : drivers)
    for (const BenchShape& shape : driver->bench_shapes(level_named(request.shapes))) {
      if (shape.cuda_only && backend != Backend::kCuda) continue;
      progress.show(fmt::format("{} {}", driver->name, shape_text(shape.sizes)));
      bench_shape(*driver, shape, request, peers, limits, report);
    }
  report.ceilings = limits.overall();
  return report;
}

int bench(const BenchRequest& request) {
  const auto drivers = drivers_named(request.ops);
  const Backend asked = backend_named(request.backend);
  require_usable(asked);
  std::vector<Backend> backends = {asked};
  if (asked == Backend::kAuto) {
    backends = {Backend::kCpu};
    if (harness::cuda_unusable() == nullptr) backends.push_back(Backend::kCuda);
  }
  if (request.files.any() && backends.size() > 1)
    throw UsageError("a file holds one machine: give --backend cpu or cuda with --json and --plot");
  require_writable(request.files);
  const Peers peers(request.peers_path);

  for (const Backend backend : backends) {
    const BenchReport report = bench_backend(backend, drivers, request, peers);
    print_report(report);
    save(to_json(report), request.files);
    if (report.rows.empty()) throw UnsupportedError("no kernel of this build serves these shapes");
  }
  return kExitOk;
}

}  // namespace

Action add_bench(CLI::App& command) {
  const auto request = std::make_shared<BenchRequest>();
  command.add_option("op", request->ops, "Ops to time; all where none is named");
  command.add_option("--backend", request->backend, "auto: the CPU, and CUDA where it can be used")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command.add_option("--shapes", request->shapes, "How many shapes of each op")
      ->check(CLI::IsMember({"quick", "k3", "full"}))
      ->capture_default_str();
  command.add_option("--threads", request->threads, "CPU threads; all where not given")
      ->check(CLI::Range(1, 1024));
  command.add_option("--json", request->files.json_path, "Write the report here")
      ->type_name("FILE");
  command.add_option("--plot", request->files.svg_path, "Draw the report here, as SVG")
      ->type_name("FILE");
  command
      .add_option("--peers", request->peers_path,
                  "Figures of others to show beside ours [bench/peers.json where it is there]")
      ->type_name("FILE");
  return [request] { return bench(*request); };
}

}  // namespace k3::cli
