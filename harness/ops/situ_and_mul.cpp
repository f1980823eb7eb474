// SPDX-License-Identifier: Apache-2.0
#include "contract/situ_and_mul.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "situ_and_mul";
constexpr const char* kScalars[] = {"beta", "linear_beta"};

SituAndMulArgs to_args(const Call& call) {
  SituAndMulArgs args;
  set_tensors(situ_and_mul_args(), call, args);
  args.beta = scalar_float(kOp, call, "beta", args.beta);
  args.linear_beta = scalar_float(kOp, call, "linear_beta");
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (bundle.tensors.contains("out") || !bundle.tensors.contains("input")) return;
  auto shape = bundle.tensors.at("input").shape();
  if (!shape.empty()) shape.back() /= 2;
  bundle.tensors["out"] = poisoned(DType::kBF16, shape);
}

void run(const Call& call, const ExecContext& ctx) { situ_and_mul(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::situ_and_mul(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return situ_and_mul_workspace_size(to_args(call), ctx);
}

/// 3 elements of 2 bytes an output. Useful operations: the formula with each transcendental as one.
Cost cost(const Bundle& bundle) {
  const auto outputs = static_cast<double>(bundle.tensors.at("out").numel());
  return {.bytes = 6.0 * outputs, .flops = 10.0 * outputs};
}

BenchShape bench_shape(std::int64_t tokens, std::int64_t D) {
  return {{{"tokens", tokens}, {"D", D}}, [=] {
            Random random(7);
            Bundle bundle;
            bundle.tensors["input"] = normal(random, DType::kBF16, {tokens, 2 * D}, 2.0);
            bundle.tensors["out"] = poisoned(DType::kBF16, {tokens, D});
            bundle.scalars = {{"beta", "4"}, {"linear_beta", "25"}};
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 6144), bench_shape(256, 6144)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {16, 4096}) shapes.push_back(bench_shape(tokens, 6144));
  for (std::int64_t tokens : {1, 16, 256, 4096}) shapes.push_back(bench_shape(tokens, 3072));
  if (level == Level::kK3) return shapes;
  for (std::int64_t tokens : {1, 256, 4096}) shapes.push_back(bench_shape(tokens, 768));
  for (std::int64_t tokens : {1, 256}) shapes.push_back(bench_shape(tokens, 33792));
  return shapes;
}

}  // namespace

const Driver& situ_and_mul_driver() {
  static const std::vector<ArgSpec> args = specs_of(situ_and_mul_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = situ_and_mul_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
