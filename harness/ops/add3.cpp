// SPDX-License-Identifier: Apache-2.0
#include "contract/add3.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

Add3Args to_args(const Call& call) {
  Add3Args args;
  set_tensors(add3_args(), call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) { add_out_like(bundle, "a"); }
void run(const Call& call, const ExecContext& ctx) { add3(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::add3(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return add3_workspace_size(to_args(call), ctx);
}

/// A row that serves all others, with a stride of 0, counts once.
double elements_of(const Tensor& tensor) {
  double elements = 1.0;
  for (std::size_t d = 0; d < tensor.shape().size(); ++d)
    if (tensor.strides()[d] != 0) elements *= static_cast<double>(tensor.shape()[d]);
  return elements;
}

Cost cost(const Bundle& bundle) {
  double elements = 0.0;
  for (const char* name : {"a", "b", "c", "out"}) elements += elements_of(bundle.tensors.at(name));
  return {.bytes = 2.0 * elements,
          .flops = 2.0 * static_cast<double>(bundle.tensors.at("out").numel())};
}

BenchShape bench_shape(std::int64_t tokens, std::int64_t D) {
  return {{{"tokens", tokens}, {"D", D}}, [=] {
            Random random(7);
            Bundle bundle;
            for (const char* name : {"a", "b", "c"})
              bundle.tensors[name] = repeated_normal(random, DType::kBF16, {tokens, D}, D);
            bundle.tensors["out"] = poisoned(DType::kBF16, {tokens, D});
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 7168), bench_shape(256, 7168)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {16, 4096}) shapes.push_back(bench_shape(tokens, 7168));
  return shapes;
}

}  // namespace

const Driver& add3_driver() {
  static const std::vector<ArgSpec> args = specs_of(add3_args());
  static const Driver driver = {.name = "add3",
                                .args = args,
                                .scalars = {},
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = add3_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
