// SPDX-License-Identifier: Apache-2.0
// `k3 demo DIR`: the recorded tensors of a folder, then a K3-shaped layer, in one table.
#include "cli/demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "harness/device.h"
#include "harness/files.h"
#include "harness/inputs.h"
#include "harness/runner.h"
#include "k3/capability.h"

namespace k3::cli {
namespace {

using harness::Bundle;
using harness::Comparison;
using harness::Driver;
using harness::RunOn;
using harness::Tensor;

constexpr double kTolerance = 5e-3;
constexpr std::int64_t kHeads = 12;  // of 96, on one of 8 ranks
constexpr std::int64_t kD = 128;

class Table {
 public:
  explicit Table(const harness::Ceilings& cpu) : cpu_(cpu) {
    fmt::print("{:<18} {:<34} {:<8} {:>11} {:>10} {:>10}\n", "op", "shape", "backend", "time us",
               "error", "% of floor");
  }

  void row(const Driver& driver, const std::string& shape, RunOn on, const Bundle& bundle,
           std::vector<double> times, const std::vector<Comparison>& comparisons) {
    double error = 0.0;
    for (const Comparison& c : comparisons) {
      error = std::max(error, c.err_ratio);
      if (c.passed) continue;
      all_passed_ = false;
      fmt::print(stderr, "k3: {} {}: {}\n", driver.name, c.name, c.why);
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    const harness::Cost cost = driver.cost(bundle);
    const harness::Ceilings& ceilings = on == RunOn::kCuda ? cuda() : cpu_;
    const double floor =
        std::max(cost.bytes / ceilings.read_write_gbps, cost.flops / ceilings.fma_gflops) / 1e3;
    fmt::print("{:<18} {:<34} {:<8} {:>11.1f} {:>10.1e} {:>10.0f}\n", driver.name, shape,
               on == RunOn::kCuda ? "cuda" : "cpu", median, error, 100.0 * floor / median);
  }

  [[nodiscard]] bool all_passed() const { return all_passed_; }

 private:
  const harness::Ceilings& cuda() {
    if (cuda_.read_write_gbps == 0.0) cuda_ = harness::measure_cuda_ceilings();
    return cuda_;
  }

  harness::Ceilings cpu_;
  harness::Ceilings cuda_;
  bool all_passed_ = true;
};

/// The best backend of this machine that has a kernel for the op.
RunOn best_backend(const Driver& driver) {
  const auto rows = capabilities();
  const bool on_cuda = std::any_of(rows.begin(), rows.end(), [&](const Capability& row) {
    return row.op == driver.name && row.backend == Backend::kCuda;
  });
  return on_cuda && harness::cuda_unusable() == nullptr ? RunOn::kCuda : RunOn::kCpu;
}

void recorded_file(Table& table, const Driver& driver, const std::filesystem::path& path) {
  const auto file = harness::load_run_file(driver, path.string());
  const RunOn on = best_backend(driver);
  std::vector<double> times;
  Bundle bundle;
  for (int repeat = 0; repeat < 5; ++repeat) {
    bundle = file.bundle.clone();
    times.push_back(harness::run_once(driver, bundle, {.on = on}));
  }
  std::vector<Comparison> comparisons;
  for (const auto& [name, expected] : file.expected)
    comparisons.push_back(
        harness::compare(name, expected, bundle.tensors.at(name), {.err_ratio = kTolerance}));
  table.row(driver, path.stem().string(), on, bundle, times, comparisons);
}

Bundle prefill_inputs(std::int64_t tokens) {
  harness::Random random(2);
  Bundle b;
  for (const char* name : {"q", "k", "v", "g"})
    b.tensors[name] = harness::normal(random, DType::kBF16, {1, tokens, kHeads, kD});
  b.tensors["beta"] = harness::normal(random, DType::kBF16, {1, tokens, kHeads});
  b.tensors["A_log"] = harness::uniform(random, DType::kF32, {kHeads}, 0.0, 1.0);
  b.tensors["dt_bias"] = harness::normal(random, DType::kF32, {kHeads, kD});
  b.scalars = {
      {"lower_bound", "-5"}, {"qk_l2norm", "1"}, {"gate_in_kernel", "1"}, {"beta_sigmoid", "1"}};
  return b;
}

std::vector<Comparison> against(const Bundle& reference, const Bundle& result,
                                std::initializer_list<const char*> names) {
  std::vector<Comparison> comparisons;
  for (const char* name : names)
    comparisons.push_back(harness::compare(name, reference.tensors.at(name),
                                           result.tensors.at(name), {.err_ratio = kTolerance}));
  return comparisons;
}

/// Prefill of a prompt; returns the state it ends in.
Tensor layer_prefill(Table& table, std::int64_t tokens) {
  const Driver& driver = *harness::find_driver("kda_prefill");
  Bundle bundle = prefill_inputs(tokens);
  driver.add_outputs(bundle, {});
  Bundle reference = bundle.clone();
  std::vector<double> times;
  const RunOn on = best_backend(driver);
  for (int repeat = 0; repeat < 5; ++repeat)
    times.push_back(harness::run_once(driver, bundle, {.on = on}));
  harness::run_once(driver, reference, {.on = RunOn::kOracle});
  table.row(driver, fmt::format("{} tokens, {} heads", tokens, kHeads), on, bundle, times,
            against(reference, bundle, {"out", "final_state"}));
  return bundle.tensors.at("final_state");
}

void layer_decode(Table& table, const Tensor& state, int steps) {
  const Driver& driver = *harness::find_driver("kda_fused_decode");
  constexpr std::int64_t kSegment = kHeads * kD;
  harness::Random random(4);
  Bundle b;
  b.tensors["conv_states"] = harness::normal(random, DType::kBF16, {1, 3, 3 * kSegment});
  b.tensors["conv_weight"] = harness::normal(random, DType::kF32, {4, 3 * kSegment}, 0.4);
  b.tensors["A_log"] = harness::uniform(random, DType::kF32, {kHeads}, 0.0, 1.0);
  b.tensors["dt_bias"] = harness::normal(random, DType::kF32, {kSegment});
  b.tensors["onorm_weight"] = harness::normal(random, DType::kF32, {kD}, 0.1, 1.0);
  b.tensors["state"] = state.clone();
  b.tensors["state_indices"] = harness::integers(DType::kI32, {0});
  b.tensors["out"] = harness::poisoned(DType::kBF16, {1, kSegment});
  b.scalars = {{"lower_bound", "-5"}};
  Bundle reference = b.clone();
  const RunOn on = best_backend(driver);
  std::vector<double> times;
  for (int step = 0; step < steps; ++step) {
    for (auto [name, width] : {std::pair{"mixed_qkv", 3 * kSegment},
                               {"g", kSegment},
                               {"beta", kHeads},
                               {"onorm_gate", kSegment}})
      reference.tensors[name] = b.tensors[name] = harness::normal(random, DType::kBF16, {1, width});
    times.push_back(harness::run_once(driver, b, {.on = on}));
    harness::run_once(driver, reference, {.on = RunOn::kOracle});
  }
  table.row(driver, fmt::format("{} steps, 1 request, {} heads", steps, kHeads), on, b, times,
            against(reference, b, {"out", "state", "conv_states"}));
}

}  // namespace

int run_demo(const std::string& folder) {
  Table table(harness::measure_cpu_ceilings(0));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const Driver* driver : harness::drivers())
    for (const auto& path : files)
      if (path.stem().string().rfind(driver->name, 0) == 0) recorded_file(table, *driver, path);
  const Tensor state = layer_prefill(table, 2048);
  layer_decode(table, state, 64);
  fmt::print(
      "error: largest rms(ref - x) / rms(ref) of the outputs; floor: memory traffic or fp32 FMA "
      "at\n"
      "this machine's measured rates. Small inputs stay in the caches and may pass 100 %.\n");
  return table.all_passed() ? 0 : 1;
}

}  // namespace k3::cli
