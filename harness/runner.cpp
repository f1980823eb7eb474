// SPDX-License-Identifier: Apache-2.0
#include "harness/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "harness/device.h"
#include "harness/host_memory.h"
#include "harness/limits.h"
#include "k3/error.h"

namespace k3::harness {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

ExecContext cpu_context(const RunOptions& options) {
  ExecContext ctx;
  ctx.backend = Backend::kCpu;
  ctx.threads = options.threads;
  ctx.variant = options.forced();
  return ctx;
}

double run_on_cpu(const Driver& driver, const Call& call, const RunOptions& options) {
  ExecContext ctx = cpu_context(options);
  HostWorkspace workspace(driver.workspace_size(call, ctx));
  ctx.workspace = workspace.get();
  const auto begin = Clock::now();
  driver.run(call, ctx);
  const double elapsed = microseconds_since(begin);
  workspace.check();
  return elapsed;
}

/// The first run of a check: between guard bytes. The second runs in the bundle's own storage, so
/// that addresses differ. The CUDA half of the runner has guard bytes in every run.
void run_guarded(const Driver& driver, Bundle& bundle, const RunOptions& options) {
  if (options.on != RunOn::kCpu) {
    run_once(driver, bundle, options);
    return;
  }
  GuardedBundle guarded(bundle);
  run_on_cpu(driver, guarded.call(driver), options);
  guarded.read_back(bundle);
}

double run_oracle(const Driver& driver, Bundle& bundle) {
  const Call call = host_call(driver, bundle);
  const auto begin = Clock::now();
  driver.run_oracle(call);
  return microseconds_since(begin);
}

/// The name of the first tensor whose bytes differ, or empty.
std::string first_difference(const Bundle& a, const Bundle& b) {
  for (const auto& [name, tensor] : a.tensors)
    if (tensor.storage_bytes() > 0 &&
        std::memcmp(tensor.storage(), b.tensors.at(name).storage(), tensor.storage_bytes()) != 0)
      return name;
  return "";
}

/// Everything the call may write, held against the oracle. A tensor without a tolerance of its own
/// must be equal.
void compare_outputs(const Driver& driver, const Case& test_case, RunOn on, const Bundle& expected,
                     const Bundle& seen, CaseResult& result) {
  const auto& tolerances = on == RunOn::kCuda && !test_case.cuda_tolerances.empty()
                               ? test_case.cuda_tolerances
                               : test_case.tolerances;
  for (const ArgSpec& arg : driver.args) {
    if (arg.role == Role::kInput || !seen.tensors.contains(arg.name)) continue;
    const auto tolerance = tolerances.find(arg.name);
    result.comparisons.push_back(
        compare(arg.name, expected.tensors.at(arg.name), seen.tensors.at(arg.name),
                tolerance == tolerances.end() ? Tolerance{.exact = true} : tolerance->second));
    if (!result.comparisons.back().passed && result.why.empty())
      result.why = result.comparisons.back().why;
  }
}

/// Tensor sets to rotate, so that the others move four times the last cache through it before a set
/// comes again; bounded by memory.
std::size_t num_sets(const Driver& driver, const Bundle& bundle) {
  constexpr double kMaxBytes = 1.5e9;
  constexpr double kMaxSets = 8000;
  const long l3 = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const double cache_bytes = l3 > 0 ? static_cast<double>(l3) : 32.0 * (1 << 20);
  double set_bytes = 1.0;
  for (const auto& [name, tensor] : bundle.tensors)
    set_bytes += static_cast<double>(tensor.storage_bytes());
  const double moved = std::max(driver.cost(bundle).bytes, 1.0);
  const double wanted = std::ceil(4.0 * cache_bytes / moved) + 1;
  return static_cast<std::size_t>(
      std::max(1.0, std::min({wanted, kMaxSets, kMaxBytes / set_bytes})));
}

Timing time_on_cpu(const Driver& driver, const BenchShape& shape, const RunOptions& options,
                   Limits& limits) {
  constexpr std::size_t kFewestSamples = 3;
  constexpr std::size_t kMinSamples = 15;
  constexpr std::size_t kMaxSamples = 20000;
  constexpr double kMinTime = 0.5e6;  // microseconds of samples, once kMinSamples
  constexpr double kMaxTime = 1.5e6;  // of long calls, which then have fewer
  constexpr double kRoundTime = 30e3;
  constexpr double kWarmUpTime = 0.2e6;

  std::vector<Bundle> sets = {shape.make()};
  const std::size_t count = num_sets(driver, sets.front());
  while (sets.size() < count) sets.push_back(sets.front().clone());
  std::vector<Call> calls;
  for (Bundle& set : sets) calls.push_back(host_call(driver, set));
  ExecContext ctx = cpu_context(options);
  HostWorkspace workspace(driver.workspace_size(calls.front(), ctx));
  ctx.workspace = workspace.get();

  std::size_t next = 0;
  const auto run_next = [&] {
    const Call& call = calls[next];
    next = (next + 1) % calls.size();
    const auto begin = Clock::now();
    driver.run(call, ctx);
    return microseconds_since(begin);
  };
  const auto warm_up = Clock::now();
  do run_next();
  while (microseconds_since(warm_up) < kWarmUpTime);

  Rounds rounds([&] { return limits.read(); }, driver.cost(sets.front()));
  std::size_t samples = 0;
  double total_time = 0.0;
  double round_time = 0.0;
  const auto enough = [&] {
    if (samples < kFewestSamples) return false;
    return samples >= kMaxSamples || total_time >= kMaxTime ||
           (samples >= kMinSamples && total_time >= kMinTime);
  };
  while (!enough()) {
    const double sample = run_next();
    rounds.add(sample);
    ++samples;
    total_time += sample;
    round_time += sample;
    if (round_time < kRoundTime && !enough()) continue;
    rounds.close();
    round_time = 0.0;
  }
  return rounds.timing();
}

}  // namespace

double run_once(const Driver& driver, Bundle& bundle, const RunOptions& options) {
  switch (options.on) {
    case RunOn::kOracle:
      return run_oracle(driver, bundle);
    case RunOn::kCuda:
      return run_once_on_device(driver, bundle, options);
    case RunOn::kCpu:
      break;
  }
  return run_on_cpu(driver, host_call(driver, bundle), options);
}

CaseResult check_case(const Driver& driver, const Case& test_case, const RunOptions& options) {
  CaseResult result;
  result.case_name = test_case.name;
  result.variant = options.variant;
  try {
    const Bundle before = test_case.make();
    Bundle first = before.clone();
    run_guarded(driver, first, options);
    Bundle second = before.clone();
    run_once(driver, second, options);
    Bundle expected = before.clone();
    run_once(driver, expected, {.on = RunOn::kOracle});

    compare_outputs(driver, test_case, options.on, expected, first, result);
    if (result.why.empty()) result.why = stray_writes(driver, before, first);
    if (result.why.empty()) result.why = touched_rows(driver, before, expected, first);
    if (const std::string name = first_difference(first, second);
        result.why.empty() && !name.empty())
      result.why = name + " has other bits on a second run";
    result.passed = result.why.empty();
  } catch (const UnsupportedError& error) {
    result.skipped = options.on == RunOn::kCuda;
    result.why = error.what();
  } catch (const std::exception& error) {
    result.why = error.what();
  }
  return result;
}

Timing time_op(const Driver& driver, const BenchShape& shape, const RunOptions& options,
               Limits& limits) {
  if (options.on == RunOn::kOracle) throw UnsupportedError("the oracle is not timed");
  if (options.on == RunOn::kCpu) return time_on_cpu(driver, shape, options, limits);
  const Bundle bundle = shape.make();
  Timing timing = time_op_on_device(driver, bundle, options);
  timing.floor_us = floor_us(driver.cost(bundle), limits.read());
  return timing;
}

}  // namespace k3::harness
