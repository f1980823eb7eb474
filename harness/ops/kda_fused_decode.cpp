// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_fused_decode.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/kda_layer.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_fused_decode";
constexpr std::int64_t kD = 128;
constexpr const char* kScalars[] = {"scale",      "lower_bound", "eps_o",
                                    "round_conv", "round_o",     "null_index"};

KdaFusedDecodeArgs to_args(const Call& call) {
  KdaFusedDecodeArgs args;
  set_tensors(kda_fused_decode_args(), call, args);
  set_decode_scalars(kOp, call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) { add_out_like(bundle, "g"); }

void run(const Call& call, const ExecContext& ctx) { kda_fused_decode(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::kda_fused_decode(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return kda_fused_decode_workspace_size(to_args(call), ctx);
}

/// Of the pools only the slots in use count, read and written.
Cost cost(const Bundle& bundle) {
  const auto& beta = bundle.tensors.at("beta").shape();
  const auto heads = static_cast<double>(beta[0] * beta[1]);
  const auto state_size = static_cast<double>(size_of(bundle.tensors.at("state").dtype()));
  const double state = 2.0 * kD * kD * state_size;
  const double window = 2.0 * 3 * 3 * kD * 2;
  const double vectors = (3 + 1 + 1 + 1) * kD * 2.0 + 2;
  return {.bytes = heads * (state + window + vectors), .flops = heads * 7.0 * kD * kD};
}

/// B requests of a K3 layer on the B slots of a pool, in shuffled order.
BenchShape bench_shape(std::int64_t B, std::int64_t H) {
  return {{{"B", B}, {"H", H}},
          [=] { return decode_layer({.B = B, .H = H, .indices = shuffled_slots(B), .seed = 5}); }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 12), bench_shape(64, 12)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t B : {8, 32, 128, 256}) shapes.push_back(bench_shape(B, 12));
  if (level == Level::kK3) return shapes;
  for (std::int64_t H : {3, 6, 24, 48}) shapes.push_back(bench_shape(1, H));
  for (std::int64_t B : {1, 8, 32, 256}) shapes.push_back(bench_shape(B, 96));
  return shapes;
}

}  // namespace

const Driver& kda_fused_decode_driver() {
  static const std::vector<ArgSpec> args = specs_of(kda_fused_decode_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = kda_fused_decode_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
