// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_topk_sum.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

MoeTopkSumArgs to_args(const Call& call) {
  MoeTopkSumArgs args;
  set_tensors(moe_topk_sum_args(), call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (bundle.tensors.contains("out") || !bundle.tensors.contains("input")) return;
  const auto& shape = bundle.tensors.at("input").shape();
  if (shape.size() == 3) bundle.tensors["out"] = poisoned(DType::kBF16, {shape[0], shape[2]});
}

void run(const Call& call, const ExecContext& ctx) { moe_topk_sum(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::moe_topk_sum(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return moe_topk_sum_workspace_size(to_args(call), ctx);
}

Cost cost(const Bundle& bundle) {
  const auto inputs = static_cast<double>(bundle.tensors.at("input").numel());
  const auto outputs = static_cast<double>(bundle.tensors.at("out").numel());
  return {.bytes = 2.0 * (inputs + outputs), .flops = inputs};
}

BenchShape bench_shape(std::int64_t T, std::int64_t H) {
  constexpr std::int64_t kTopk = 16;
  return {{{"T", T}, {"topk", kTopk}, {"H", H}}, [=] {
            Random random(7);
            Bundle bundle;
            bundle.tensors["input"] =
                repeated_normal(random, DType::kBF16, {T, kTopk, H}, kTopk * H);
            bundle.tensors["out"] = poisoned(DType::kBF16, {T, H});
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 3584), bench_shape(256, 3584)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t T : {16, 4096}) shapes.push_back(bench_shape(T, 3584));
  if (level == Level::kK3) return shapes;
  for (std::int64_t T : {1, 256}) shapes.push_back(bench_shape(T, 7168));
  return shapes;
}

}  // namespace

const Driver& moe_topk_sum_driver() {
  static const std::vector<ArgSpec> args = specs_of(moe_topk_sum_args());
  static const Driver driver = {.name = "moe_topk_sum",
                                .args = args,
                                .scalars = {},
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = moe_topk_sum_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
