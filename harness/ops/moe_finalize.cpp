// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_finalize.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

MoeFinalizeArgs to_args(const Call& call) {
  MoeFinalizeArgs args;
  set_tensors(moe_finalize_args(), call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (bundle.tensors.contains("out") || !bundle.tensors.contains("experts_out") ||
      !bundle.tensors.contains("topk_weights"))
    return;
  const auto& rows = bundle.tensors.at("experts_out").shape();
  const auto& weights = bundle.tensors.at("topk_weights").shape();
  if (rows.size() == 2 && weights.size() == 2)
    bundle.tensors["out"] = poisoned(DType::kBF16, {weights[0], rows[1]});
}

void run(const Call& call, const ExecContext& ctx) { moe_finalize(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::moe_finalize(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return moe_finalize_workspace_size(to_args(call), ctx);
}

/// As if no slot were dropped and no row shared.
Cost cost(const Bundle& bundle) {
  const Tensor& weights = bundle.tensors.at("topk_weights");
  const auto slots = static_cast<double>(weights.numel());
  const auto H = static_cast<double>(bundle.tensors.at("experts_out").shape()[1]);
  const auto outputs = static_cast<double>(bundle.tensors.at("out").numel());
  const auto weight_bytes = static_cast<double>(size_of(weights.dtype()));
  return {.bytes = slots * (2.0 * H + 4.0 + weight_bytes) + 2.0 * outputs, .flops = 2 * slots * H};
}

/// Every token's 16 rows spread over all of experts_out, each row used once.
BenchShape bench_shape(std::int64_t T, std::int64_t H) {
  constexpr std::int64_t kTopk = 16;
  return {{{"T", T}, {"topk", kTopk}, {"H", H}}, [=] {
            Random random(7);
            Bundle bundle;
            bundle.tensors["experts_out"] =
                repeated_normal(random, DType::kBF16, {T * kTopk, H}, kTopk * H);
            std::vector<std::int64_t> rows(static_cast<std::size_t>(T * kTopk));
            for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
            for (std::size_t i = rows.size(); i > 1; --i)
              std::swap(rows[i - 1], rows[random.next() % i]);
            bundle.tensors["idx"] = integers(DType::kI32, rows);
            bundle.tensors["topk_weights"] = uniform(random, DType::kBF16, {T, kTopk}, 0.0, 0.2);
            bundle.tensors["out"] = poisoned(DType::kBF16, {T, H});
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 3584), bench_shape(256, 3584)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t T : {16, 4096}) shapes.push_back(bench_shape(T, 3584));
  return shapes;
}

}  // namespace

const Driver& moe_finalize_driver() {
  static const std::vector<ArgSpec> args = specs_of(moe_finalize_args());
  static const Driver driver = {.name = "moe_finalize",
                                .args = args,
                                .scalars = {},
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = moe_finalize_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
