// SPDX-License-Identifier: Apache-2.0
#include "contract/per_token_group_quant.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "per_token_group_quant";
constexpr const char* kScalars[] = {"group_size", "scale_ue8m0", "output_dtype", "scale_dtype"};

PerTokenGroupQuantArgs to_args(const Call& call) {
  PerTokenGroupQuantArgs args;
  set_tensors(per_token_group_quant_args(), call, args);
  args.group_size = scalar_int(kOp, call, "group_size", args.group_size);
  args.scale_ue8m0 = scalar_bool(kOp, call, "scale_ue8m0", args.scale_ue8m0);
  return args;
}

/// `output_dtype` is e4m3 or i8, `scale_dtype` f32 or i32; row-major.
void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (!bundle.tensors.contains("input")) return;
  const int group = to_args({.tensors = {}, .scalars = bundle.scalars}).group_size;
  const auto& shape = bundle.tensors.at("input").shape();
  if (!bundle.tensors.contains("output_q"))
    bundle.tensors["output_q"] = poisoned(
        scalar_dtype(kOp, bundle, "output_dtype", DType::kF8E4M3, {DType::kF8E4M3, DType::kI8}),
        shape);
  if (!bundle.tensors.contains("output_s"))
    bundle.tensors["output_s"] = poisoned_scales(kOp, bundle, shape, group);
}

void run(const Call& call, const ExecContext& ctx) { per_token_group_quant(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::per_token_group_quant(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return per_token_group_quant_workspace_size(to_args(call), ctx);
}

/// Useful operations: a comparison, a product and a conversion each.
Cost cost(const Bundle& bundle) {
  return {.bytes = bytes_of(bundle),
          .flops = 3.0 * static_cast<double>(bundle.tensors.at("input").numel())};
}

/// Packed UE8M0 scales, row-major, or fp32 ones.
BenchShape bench_shape(std::int64_t tokens, std::int64_t D, std::int64_t group, bool ue8m0) {
  return {{{"tokens", tokens}, {"D", D}, {"group_size", group}, {"ue8m0", ue8m0 ? 1 : 0}}, [=] {
            Random random(7);
            Bundle bundle;
            const std::int64_t G = D / group;
            bundle.tensors["input"] = normal(random, DType::kBF16, {tokens, D});
            bundle.tensors["output_q"] = poisoned(DType::kF8E4M3, {tokens, D});
            bundle.tensors["output_s"] = ue8m0 ? poisoned(DType::kI32, {tokens, (G + 3) / 4})
                                               : poisoned(DType::kF32, {tokens, G});
            bundle.scalars = {{"group_size", std::to_string(group)},
                              {"scale_ue8m0", ue8m0 ? "1" : "0"}};
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes;
  for (std::int64_t tokens : {1, 256}) shapes.push_back(bench_shape(tokens, 3584, 32, true));
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {16, 4096}) shapes.push_back(bench_shape(tokens, 3584, 32, true));
  for (std::int64_t tokens : {1, 16, 256, 4096})
    shapes.push_back(bench_shape(tokens, 7168, 128, false));
  if (level == Level::kK3) return shapes;
  for (std::int64_t tokens : {1, 256, 4096}) shapes.push_back(bench_shape(tokens, 6144, 128, true));
  return shapes;
}

}  // namespace

const Driver& per_token_group_quant_driver() {
  static const std::vector<ArgSpec> args = specs_of(per_token_group_quant_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = per_token_group_quant_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
