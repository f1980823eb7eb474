// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "harness/device.h"
#include "harness/runner.h"

namespace k3::cli {
namespace {

using harness::Case;
using harness::CaseResult;
using harness::Driver;

struct CheckRequest {
  std::vector<std::string> ops;
  std::string backend = "auto";
  bool quick = false;
  bool full = false;
  bool json = false;
};

struct Totals {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
};

/// Of a refusal that lists every candidate, the line about this variant.
std::string reason_for(const std::string& variant, const std::string& text) {
  const std::string label = ":" + variant + ": ";
  const std::size_t found = text.find(label);
  const std::size_t begin = found == std::string::npos ? 0 : found + label.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

const char* verdict(const CaseResult& result) {
  if (result.skipped) return "skip";
  return result.passed ? "ok" : "FAIL";
}

nlohmann::ordered_json to_json(const Driver& driver, const Variant& variant,
                               const CaseResult& result) {
  nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
  for (const harness::Comparison& c : result.comparisons)
    outputs.push_back({{"name", c.name},
                       {"err_ratio", c.err_ratio},
                       {"row_err_ratio", c.row_err_ratio},
                       {"max_abs", c.max_abs},
                       {"ok", c.passed}});
  return {{"op", driver.name},
          {"backend", name_of(variant.backend)},
          {"variant", variant.name},
          {"case", result.case_name},
          {"result", verdict(result)},
          {"why", result.why},
          {"outputs", std::move(outputs)}};
}

void print_line(const Driver& driver, const Variant& variant, const CaseResult& result) {
  fmt::print("{:<4}  {:<18} {:<4} {:<12} {}{}{}\n", verdict(result), driver.name,
             name_of(variant.backend), variant.name, result.case_name,
             result.why.empty() ? "" : ": ", result.why);
  std::fflush(stdout);
}

CaseResult check_one(const Driver& driver, const Variant& variant, const Case& test_case) {
  const char* unusable = variant.backend == Backend::kCuda ? harness::cuda_unusable() : nullptr;
  if (unusable != nullptr)
    return {.case_name = test_case.name, .variant = variant.name, .skipped = true, .why = unusable};
  CaseResult result =
      harness::check_case(driver, test_case, {.on = variant.run_on(), .variant = variant.name});
  if (result.skipped) result.why = reason_for(variant.name, result.why);
  return result;
}

int check(const CheckRequest& request) {
  const Backend backend = backend_named(request.backend);
  const auto drivers = drivers_named(request.ops);
  require_usable(backend);
  Totals totals;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  Progress progress;
  for (const Driver* driver : drivers)
    for (const Variant& variant : variants_of(driver->name, backend))
      for (const Case& test_case : driver->cases()) {
        if (request.quick && !test_case.quick) continue;
        progress.show(fmt::format("{} {} {}", driver->name, variant.name, test_case.name));
        const CaseResult result = check_one(*driver, variant, test_case);
        progress.clear();
        ++(result.skipped ? totals.skipped : result.passed ? totals.passed : totals.failed);
        if (request.json)
          rows.push_back(to_json(*driver, variant, result));
        else
          print_line(*driver, variant, result);
      }
  if (request.json)
    print_json({{"cases", std::move(rows)},
                {"passed", totals.passed},
                {"failed", totals.failed},
                {"skipped", totals.skipped}});
  else
    fmt::print("{} passed, {} failed, {} skipped\n", totals.passed, totals.failed, totals.skipped);
  if (backend != Backend::kAuto && totals.passed + totals.failed == 0)
    throw UnsupportedError(fmt::format("--backend {}: no case ran", request.backend));
  return totals.failed == 0 ? kExitOk : kExitDiffers;
}

}  // namespace

Action add_check(CLI::App& command) {
  const auto request = std::make_shared<CheckRequest>();
  command.add_option("op", request->ops, "Ops to check; all where none is named");
  command.add_option("--backend", request->backend, "Kernels of one backend alone")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  CLI::Option* quick = command.add_flag("--quick", request->quick, "Leave the long cases out");
  command.add_flag("--full", request->full, "Every case (the default)")->excludes(quick);
  command.add_flag("--json", request->json, "Print JSON");
  return [request] { return check(*request); };
}

}  // namespace k3::cli
