// SPDX-License-Identifier: Apache-2.0
#include "contract/mla_output_gate.h"

#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

MlaOutputGateArgs to_args(const Call& call) {
  MlaOutputGateArgs args;
  set_tensors(mla_output_gate_args(), call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string> /*wanted*/) {
  add_out_like(bundle, "x");
}

void run(const Call& call, const ExecContext& ctx) { mla_output_gate(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::mla_output_gate(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return mla_output_gate_workspace_size(to_args(call), ctx);
}

/// 3 elements of 2 bytes an output. Useful operations: the formula with the exponential as one.
Cost cost(const Bundle& bundle) {
  const auto outputs = static_cast<double>(bundle.tensors.at("out").numel());
  return {.bytes = 6.0 * outputs, .flops = 4.0 * outputs};
}

BenchShape bench_shape(std::int64_t tokens, std::int64_t heads) {
  return {{{"tokens", tokens}, {"heads", heads}}, [=] {
            Random random(7);
            const std::vector<std::int64_t> shape = {tokens, heads * 128};
            Bundle bundle;
            bundle.tensors["x"] = normal(random, DType::kBF16, shape);
            bundle.tensors["gate"] = normal(random, DType::kBF16, shape, 2.0);
            bundle.tensors["out"] = poisoned(DType::kBF16, shape);
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 96), bench_shape(64, 96)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(bench_shape(512, 96));
  if (level == Level::kK3) return shapes;
  shapes.push_back(bench_shape(4096, 96));
  for (std::int64_t tokens : {1, 64, 512, 4096}) shapes.push_back(bench_shape(tokens, 12));
  return shapes;
}

}  // namespace

const Driver& mla_output_gate_driver() {
  static const std::vector<ArgSpec> args = specs_of(mla_output_gate_args());
  static const Driver driver = {.name = "mla_output_gate",
                                .args = args,
                                .scalars = {},
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = mla_output_gate_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
