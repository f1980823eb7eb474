// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_output_norm.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_output_norm";
constexpr std::int64_t kD = 128;
constexpr const char* kScalars[] = {"eps"};

KdaOutputNormArgs to_args(const Call& call) {
  KdaOutputNormArgs args;
  set_tensors(kda_output_norm_args(), call, args);
  args.eps = scalar_float(kOp, call, "eps", args.eps);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) { add_out_like(bundle, "raw"); }

void run(const Call& call, const ExecContext& ctx) { kda_output_norm(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::kda_output_norm(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return kda_output_norm_workspace_size(to_args(call), ctx);
}

/// raw, gate and out; a square, a sum, three products and a sigmoid an element.
Cost cost(const Bundle& bundle) {
  const auto elements = static_cast<double>(bundle.tensors.at("out").numel());
  return {.bytes = 6.0 * elements, .flops = 6.0 * elements};
}

struct Options {
  std::int64_t T = 3;
  std::int64_t H = 2;
  double deviation = 1.0;
  const char* eps = "1e-5";
};

std::map<std::string, Tolerance> tolerances(const Options& /*o*/) {
  return {{"out", {.err_ratio = 2e-3, .row_err_ratio = 4e-3}}};
}

Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  Bundle b;
  b.tensors["raw"] = normal(random, DType::kBF16, {o.T, o.H * kD}, o.deviation);
  b.tensors["gate"] = normal(random, DType::kBF16, {o.T, o.H * kD});
  b.tensors["weight"] = normal(random, DType::kF32, {kD}, 0.1, 1.0);
  b.tensors["out"] = poisoned(DType::kBF16, {o.T, o.H * kD});
  b.scalars = {{"eps", o.eps}};
  return b;
}

std::vector<Case> cases() {
  CaseList<Options> list(make_bundle, tolerances);
  for (std::int64_t H : {1, 3, 6, 12, 96})
    for (std::int64_t T : {1, 7})
      list.add("heads_" + std::to_string(H) + "_tokens_" + std::to_string(T), {.T = T, .H = H});
  list.add("tokens_0", {.T = 0});
  list.add("tokens_257", {.T = 257, .H = 3});
  list.add("tiny", {.deviation = 1e-4});
  list.add("huge", {.deviation = 1e15});
  list.add("eps_0", {.eps = "0"});
  list.add("eps_large", {.eps = "10"});
  list.add("odd_rows", {.T = 5, .H = 3}, [](Bundle& b) {
    pad_rows(b, "raw", 17, 1);
    pad_rows(b, "gate", 7, 5);
    pad_rows(b, "out", 9, 3);
  });
  list.add("gate_shut", {},
           [](Bundle& b) { set_all(b, "gate", [](std::int64_t) { return -1e4; }); });
  list.add("gate_open", {},
           [](Bundle& b) { set_all(b, "gate", [](std::int64_t) { return 1e4; }); });
  list.add("rows_of_zeros", {}, [](Bundle& b) {
    set_all(b, "raw", [](std::int64_t i) { return i < 2 * kD ? 0.0 : 1.0; });
  });
  list.add("nan_in_one_token", {}, [](Bundle& b) { fill_rows_with_nan(b, "raw", 1, 2); });
  return list.take();
}

/// The tokens of a decode batch, of a verify (8 each) and of a prefill.
std::vector<BenchShape> bench_shapes(Level level) {
  const auto shape = [](std::int64_t T, std::int64_t H) -> BenchShape {
    return {{{"tokens", T}, {"H", H}}, [=] { return make_bundle({.T = T, .H = H}, 5); }};
  };
  std::vector<BenchShape> shapes = {shape(8, 12), shape(512, 12)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t T : {1, 64, 2048}) shapes.push_back(shape(T, 12));
  if (level == Level::kFull) shapes.push_back(shape(2048, 96));
  return shapes;
}

}  // namespace

const Driver& kda_output_norm_driver() {
  static const std::vector<ArgSpec> args = specs_of(kda_output_norm_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
