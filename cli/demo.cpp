// SPDX-License-Identifier: Apache-2.0
// `k3 demo DIR`: the recorded tensors of a folder, then a K3-shaped layer, in one table.
#include "cli/demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "cli/commands.h"
#include "cli/common.h"
#include "harness/device.h"
#include "harness/files.h"
#include "harness/limits.h"
#include "harness/ops/kda_layer.h"

namespace k3::cli {
namespace {

using harness::Bundle;
using harness::Comparison;
using harness::Driver;
using harness::RunOn;
using harness::Tensor;

constexpr harness::Tolerance kTolerance = {.err_ratio = 5e-3};
constexpr int kRepeats = 5;

/// The table, and what each row is held against.
class Report {
 public:
  void row(const Driver& driver, const std::string& shape, RunOn on, const harness::Timing& timing,
           const std::vector<Comparison>& comparisons) {
    double error = 0.0;
    for (const Comparison& c : comparisons) {
      error = std::max(error, c.err_ratio);
      if (!c.passed) failures_.push_back(fmt::format("{} {}: {}", driver.name, shape, c.why));
    }
    table_.add({driver.name, shape, name_of(on), fmt::format("{:.1f}", timing.median_us),
                fmt::format("{:.1e}", error),
                fmt::format("{:.0f}", 100.0 * timing.floor_us / timing.median_us)});
  }

  /// For the samples of a row, one a round.
  harness::Rounds rounds(const Driver& driver, RunOn on, const Bundle& bundle) {
    harness::Limits& limits = limits_.try_emplace(on, on).first->second;
    return {[&limits] { return limits.read(); }, driver.cost(bundle)};
  }

  /// The exit code.
  [[nodiscard]] int print() const {
    table_.print();
    fmt::print(
        "error: largest rms(ref - x) / rms(ref) of the outputs; floor: memory traffic or fp32 FMA "
        "at\nthis machine's measured rates. Small inputs stay in the caches and may pass 100 %.\n");
    for (const std::string& why : failures_) fmt::print("{}\n", why);
    return failures_.empty() ? kExitOk : kExitDiffers;
  }

 private:
  Table table_{
      {{"op"}, {"shape"}, {"backend"}, {"time us", true}, {"error", true}, {"% of floor", true}}};
  std::vector<std::string> failures_;
  std::map<RunOn, harness::Limits> limits_;
};

void add_round(harness::Rounds& rounds, double microseconds) {
  rounds.add(microseconds);
  rounds.close();
}

void recorded_file(Report& report, const Driver& driver, const std::filesystem::path& path) {
  const harness::RunFile file = harness::load_run_file(driver, path.string());
  const RunOn on = run_on(driver, "auto");
  harness::Rounds rounds = report.rounds(driver, on, file.bundle);
  Bundle bundle;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    bundle = file.bundle.clone();
    add_round(rounds, harness::run_once(driver, bundle, {.on = on}));
  }
  report.row(driver, path.stem().string(), on, rounds.timing(),
             harness::compare_expected(file, bundle, kTolerance));
}

std::vector<Comparison> against(const Bundle& reference, const Bundle& result,
                                std::initializer_list<const char*> names) {
  std::vector<Comparison> comparisons;
  for (const char* name : names)
    comparisons.push_back(
        harness::compare(name, reference.tensors.at(name), result.tensors.at(name), kTolerance));
  return comparisons;
}

/// Prefill of a prompt; returns the state it ends in.
Tensor layer_prefill(Report& report, std::int64_t tokens) {
  const Driver& driver = driver_named("kda_prefill");
  const harness::PrefillLayer layer = {.lengths = {tokens}, .initial_state = false};
  Bundle bundle = harness::prefill_layer(layer);
  Bundle reference = bundle.clone();
  const RunOn on = run_on(driver, "auto");
  harness::Rounds rounds = report.rounds(driver, on, bundle);
  for (int repeat = 0; repeat < kRepeats; ++repeat)
    add_round(rounds, harness::run_once(driver, bundle, {.on = on}));
  harness::run_once(driver, reference, {.on = RunOn::kOracle});
  report.row(driver, fmt::format("{} tokens, {} heads", tokens, layer.H), on, rounds.timing(),
             against(reference, bundle, {"out", "final_state"}));
  return bundle.tensors.at("final_state");
}

/// Tokens after the prompt, each from the state that the one before it has left.
void layer_decode(Report& report, const Tensor& state, int steps) {
  const Driver& driver = driver_named("kda_fused_decode");
  const harness::DecodeLayer layer;
  Bundle bundle = harness::decode_layer(layer);
  bundle.tensors["state"] = state.clone();
  Bundle reference = bundle.clone();
  const RunOn on = run_on(driver, "auto");
  harness::Random tokens(4);
  harness::Random same_tokens(4);
  harness::Rounds rounds = report.rounds(driver, on, bundle);
  for (int step = 0; step < steps; ++step) {
    harness::draw_next_token(tokens, bundle);
    harness::draw_next_token(same_tokens, reference);
    add_round(rounds, harness::run_once(driver, bundle, {.on = on}));
    harness::run_once(driver, reference, {.on = RunOn::kOracle});
  }
  report.row(driver, fmt::format("{} steps, 1 request, {} heads", steps, layer.H), on,
             rounds.timing(), against(reference, bundle, {"out", "state", "conv_states"}));
}

}  // namespace

int run_demo(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  Report report;
  Progress progress;
  for (const auto& path : files) {
    progress.show(path.string());
    if (const Driver* driver = harness::find_driver(harness::op_of_file(path.string())))
      recorded_file(report, *driver, path);
  }
  progress.show("a K3 layer");
  layer_decode(report, layer_prefill(report, 2048), 64);
  progress.clear();
  return report.print();
}

}  // namespace k3::cli
