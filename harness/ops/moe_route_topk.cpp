// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_route_topk.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/moe_router.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_route_topk";
constexpr const char* kScalars[] = {"topk", "renormalize", "routed_scaling_factor", "sorted"};

MoeRouteTopkArgs to_args(const Call& call) {
  MoeRouteTopkArgs args;
  set_tensors(moe_route_topk_args(), call, args);
  set_router_args(kOp, call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (!bundle.tensors.contains("scores")) return;
  add_topk_outputs(kOp, bundle, bundle.tensors.at("scores"));
}

void run(const Call& call, const ExecContext& ctx) { moe_route_topk(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::moe_route_topk(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return moe_route_topk_workspace_size(to_args(call), ctx);
}

/// Useful operations: a sigmoid as four, the sum and a comparison for each expert.
Cost cost(const Bundle& bundle) {
  const Tensor& scores = bundle.tensors.at("scores");
  const auto logits = static_cast<double>(scores.numel());
  const auto chosen = static_cast<double>(bundle.tensors.at("topk_ids").numel());
  const auto experts = static_cast<double>(bundle.tensors.at("bias").numel());
  return {
      .bytes = logits * static_cast<double>(size_of(scores.dtype())) + 8.0 * chosen + 4.0 * experts,
      .flops = 6.0 * logits};
}

BenchShape bench_shape(std::int64_t tokens, bool f32_sorted) {
  return {{{"tokens", tokens}, {"E", 896}, {"topk", 16}, {"f32_sorted", f32_sorted ? 1 : 0}}, [=] {
            const RouterShape shape = {.T = tokens,
                                       .scores = f32_sorted ? DType::kF32 : DType::kBF16,
                                       .scale = "1",
                                       .sorted = f32_sorted};
            Bundle bundle;
            draw_router(bundle, shape, 7);
            set_router_scalars(bundle, shape);
            bundle.scalars["sorted"] = f32_sorted ? "1" : "0";
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, false), bench_shape(64, false),
                                    bench_shape(1024, false)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {1, 64, 1024}) shapes.push_back(bench_shape(tokens, true));
  shapes.push_back(bench_shape(512, false));
  shapes.push_back(bench_shape(8192, false));
  return shapes;
}

}  // namespace

const Driver& moe_route_topk_driver() {
  static const std::vector<ArgSpec> args = specs_of(moe_route_topk_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = moe_route_topk_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
