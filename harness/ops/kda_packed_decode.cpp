// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_packed_decode.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/kda_layer.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_packed_decode";
constexpr std::int64_t kD = 128;
constexpr const char* kScalars[] = {"scale", "lower_bound", "null_index"};

KdaPackedDecodeArgs to_args(const Call& call) {
  KdaPackedDecodeArgs args;
  set_tensors(kda_packed_decode_args(), call, args);
  args.scale = scalar_float(kOp, call, "scale");
  args.lower_bound = scalar_float(kOp, call, "lower_bound");
  args.null_index = scalar_int(kOp, call, "null_index", args.null_index);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) { add_out_like(bundle, "g"); }

void run(const Call& call, const ExecContext& ctx) { kda_packed_decode(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::kda_packed_decode(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return kda_packed_decode_workspace_size(to_args(call), ctx);
}

/// Of the pool only the slots in use count, read and written.
Cost cost(const Bundle& bundle) {
  const auto& beta = bundle.tensors.at("beta").shape();
  const auto heads = static_cast<double>(beta[0] * beta[1]);
  const auto state_size = static_cast<double>(size_of(bundle.tensors.at("state").dtype()));
  const double state = 2.0 * kD * kD * state_size;
  const auto qkv = static_cast<double>(bundle.tensors.at("mixed_qkv").numel()) * 2.0;
  const double vectors = (1 + 1) * kD * 2.0 + 2;  // g, out, beta
  return {.bytes = heads * (state + vectors) + qkv, .flops = heads * 7.0 * kD * kD};
}

BenchShape bench_shape(std::int64_t B, std::int64_t H) {
  return {{{"B", B}, {"H", H}},
          [=] { return packed_layer({.B = B, .H = H, .indices = shuffled_slots(B), .seed = 5}); }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 12), bench_shape(64, 12)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t B : {8, 32, 128, 256}) shapes.push_back(bench_shape(B, 12));
  if (level == Level::kFull) shapes.push_back(bench_shape(256, 96));
  return shapes;
}

}  // namespace

const Driver& kda_packed_decode_driver() {
  static const std::vector<ArgSpec> args = specs_of(kda_packed_decode_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = kda_packed_decode_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
