// SPDX-License-Identifier: Apache-2.0
// `k3 layer`: one rank's part of two K3 layers, step by step (examples/k3_layer).
#include "examples/k3_layer/layer.h"

#include <fmt/format.h>

#include <limits>
#include <memory>

#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "harness/device.h"
#include "harness/machine.h"
#include "k3/device.h"

namespace k3::cli {
namespace {

using layer::Bill;
using layer::Mode;
using layer::OpBill;
using layer::SumBill;

struct LayerRequest {
  std::int64_t tp = 8;
  std::int64_t batch = 1;
  std::int64_t context = 1024;
  std::int64_t steps = 0;
  std::string mode = "decode";
  std::string backend = "auto";
  std::string dense = "op";
  std::uint64_t seed = 1;
  int threads = 0;
  ReportFiles files;
};

constexpr std::int64_t kDraftTokens = 8;  ///< of a verify step, half of them accepted

layer::Request to_layer(const LayerRequest& request) {
  const bool prefill = request.mode == "prefill";
  layer::Request r;
  r.mode = prefill ? Mode::kPrefill : request.mode == "verify" ? Mode::kVerify : Mode::kDecode;
  r.sizes = layer::k3_sizes(request.tp);
  r.batch = request.batch;
  r.tokens = prefill ? request.context : r.mode == Mode::kVerify ? kDraftTokens : 1;
  r.accepted = r.mode == Mode::kVerify ? kDraftTokens / 2 : r.tokens;
  r.context = prefill ? 0 : request.context;
  r.steps = request.steps > 0 ? request.steps : prefill ? 4 : 64;
  r.seed = request.seed;
  r.dense_by_library = request.dense == "library";
  return r;
}

void require_memory(const LayerRequest& request, const layer::Request& run, harness::RunOn on) {
  const layer::Memory memory = layer::memory_of(run, on);
  if (memory.needed <= memory.free) return;
  throw UsageError(fmt::format(
      "--batch {} and --context {} need {:.1f} GB of memory; this machine has {:.1f} to give",
      request.batch, request.context, 1e-9 * memory.needed, 1e-9 * memory.free));
}

int threads_of(const LayerRequest& request) {
  return request.threads > 0 ? request.threads : cpu_info().threads;
}

std::vector<std::string> cells_of(const OpBill& row) {
  const double median = row.timing.median_us;
  return {name_of(row.op->part),
          row.op->label,
          row.op->driver->name,
          std::to_string(row.launches),
          fmt::format("{:.2f}", median),
          fmt::format("{:.3f}", 1e-6 * row.cost.bytes),
          fmt::format("{:.2f}", 1e-6 * row.cost.flops),
          fmt::format("{:.2f}", row.timing.floor_us),
          fmt::format("{:.0f}", 100.0 * row.timing.floor_us / median)};
}

void print_head(const LayerRequest& request, const layer::Request& run, const Bill& bill,
                harness::RunOn on) {
  const bool on_cuda = on == harness::RunOn::kCuda;
  const harness::Ceilings& limits = bill.ceilings;
  fmt::print("{}: read+write {:.1f} GB/s, fp32 FMA {:.0f} GFLOP/s{}\n",
             harness::machine_name(on_cuda ? Backend::kCuda : Backend::kCpu),
             limits.read_write_gbps, limits.fma_gflops,
             on_cuda ? fmt::format(", bf16 tensor cores {:.0f} GFLOP/s, empty launch {:.2f} us",
                                   limits.tensor_gflops, limits.empty_launch_us)
                     : fmt::format(", {} threads", threads_of(request)));
  fmt::print(
      "{}: one rank of {}, {} x {} tokens, context {}, {} steps; out: rms {:.4f}, hash {:016x}\n\n",
      request.mode, request.tp, run.batch, run.tokens, run.context, run.steps, bill.out_rms,
      bill.out_hash);
}

void print_bill(const Bill& bill, harness::RunOn on) {
  const char* const calls = on == harness::RunOn::kCuda ? "launches" : "calls";
  const auto print_ops = [&](const std::vector<OpBill>& rows) {
    Table table({{"part"},
                 {"op"},
                 {"kernel"},
                 {calls, true},
                 {"us", true},
                 {"MB", true},
                 {"MFLOP", true},
                 {"floor us", true},
                 {"% of floor", true}});
    for (const OpBill& row : rows) table.add(cells_of(row));
    table.print();
  };
  print_ops(bill.ops);
  if (!bill.unfused_ops.empty()) {
    fmt::print("\nin place of fused ops\n");
    print_ops(bill.unfused_ops);
  }
  fmt::print("\n");
  Table sums({{"sum"},
              {calls, true},
              {"sum of ops us", true},
              {"in one chain us", true},
              {"floor us", true}});
  for (const SumBill& sum : bill.sums)
    sums.add({sum.name, std::to_string(sum.launches), fmt::format("{:.2f}", sum.sum_us),
              fmt::format("{:.2f}", sum.chain.median_us),
              fmt::format("{:.2f}", sum.chain.floor_us)});
  sums.print();
}

/// As `k3 bench` reports, each op a row under the panel it is drawn in.
nlohmann::ordered_json to_json(const LayerRequest& request, const layer::Request& run,
                               const Bill& bill, harness::RunOn on) {
  BenchReport report;
  report.backend = on == harness::RunOn::kCuda ? Backend::kCuda : Backend::kCpu;
  report.machine = harness::machine_name(report.backend);
  report.threads = threads_of(request);
  report.ceilings = bill.ceilings;
  std::vector<std::string> panels;
  const auto add = [&](const char* panel, const char* op, const std::string& label,
                       const harness::Timing& timing, const harness::Cost& cost) {
    report.rows.push_back({op, {report.backend, label}, {}, timing, cost, {}});
    panels.emplace_back(panel);
  };
  for (const OpBill& row : bill.ops)
    add(name_of(row.op->part), row.op->driver->name, row.op->label, row.timing, row.cost);
  for (const OpBill& row : bill.unfused_ops)
    add("in place of fused ops", row.op->driver->name, row.op->label, row.timing, row.cost);
  for (const SumBill& sum : bill.sums) add("sums", "sum", sum.name, sum.chain, sum.cost);

  nlohmann::ordered_json json = to_json(report);
  for (std::size_t i = 0; i < panels.size(); ++i) json["rows"][i]["panel"] = panels[i];
  json["layer"] = {{"tp", request.tp},        {"batch", run.batch},
                   {"mode", request.mode},    {"tokens", run.tokens},
                   {"context", run.context},  {"steps", run.steps},
                   {"dense", request.dense},  {"seed", run.seed},
                   {"out_rms", bill.out_rms}, {"out_hash", fmt::format("{:016x}", bill.out_hash)}};
  for (const SumBill& sum : bill.sums)
    json["sums"].push_back({{"name", sum.name},
                            {"launches", sum.launches},
                            {"sum_us", sum.sum_us},
                            {"chain_us", sum.chain.median_us},
                            {"floor_us", sum.chain.floor_us}});
  return json;
}

int run_layer(const LayerRequest& request) {
  const Backend backend = backend_named(request.backend);
  require_usable(backend);
  const bool on_cuda = backend == Backend::kCuda ||
                       (backend == Backend::kAuto && harness::cuda_unusable() == nullptr);
  const harness::RunOn on = on_cuda ? harness::RunOn::kCuda : harness::RunOn::kCpu;
  const layer::Request run = to_layer(request);
  require_memory(request, run, on);
  require_writable(request.files);
  const Bill bill = layer::run(run, on, request.threads);

  print_head(request, run, bill, on);
  print_bill(bill, on);
  save(to_json(request, run, bill, on), request.files);
  return kExitOk;
}

}  // namespace

Action add_layer(CLI::App& command) {
  const auto request = std::make_shared<LayerRequest>();
  constexpr std::int64_t kMostTokens = 1 << 20;  // what K3 was made for
  command.add_option("--tp", request->tp, "Ranks that share the layers; one of them runs")
      ->check(CLI::IsMember({"1", "4", "8", "16", "32"}))
      ->capture_default_str();
  command.add_option("--batch", request->batch, "Requests")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65535}))
      ->capture_default_str();
  command
      .add_option("--context", request->context,
                  "Tokens of each request before the first step; prefill: of each prompt")
      ->check(CLI::Range(std::int64_t{1}, kMostTokens))
      ->capture_default_str();
  command.add_option("--steps", request->steps, "Steps; 64, or 4 prompts, where not given")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000}));
  command.add_option("--mode", request->mode, "verify: drafts of 8 tokens, 4 of them accepted")
      ->check(CLI::IsMember({"decode", "prefill", "verify"}))
      ->capture_default_str();
  command.add_option("--backend", request->backend, "What runs it")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--dense", request->dense,
                  "CUDA: dense projections of up to 16 rows by tiny_gemm, or by cuBLASLt")
      ->check(CLI::IsMember({"op", "library"}))
      ->capture_default_str();
  command.add_option("--threads", request->threads, "CPU threads; all where not given")
      ->check(CLI::Range(1, 1024));
  command.add_option("--seed", request->seed, "Of weights and inputs")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command.add_option("--json", request->files.json_path, "Write the bill here")->type_name("FILE");
  command.add_option("--plot", request->files.svg_path, "Draw the bill here, as SVG")
      ->type_name("FILE");
  return [request] { return run_layer(*request); };
}

}  // namespace k3::cli
