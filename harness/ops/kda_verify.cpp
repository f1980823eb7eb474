// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_verify.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/kda_layer.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_verify";
constexpr std::int64_t kD = 128;
constexpr const char* kScalars[] = {"scale",   "lower_bound", "eps_o",        "round_conv",
                                    "round_o", "null_index",  "max_query_len"};

KdaVerifyArgs to_args(const Call& call) {
  KdaVerifyArgs args;
  set_tensors(kda_verify_args(), call, args);
  set_decode_scalars(kOp, call, args);
  args.max_query_len = scalar_int(kOp, call, "max_query_len", args.max_query_len);
  return args;
}

/// The side outputs are updated in place: a file that wants them holds them as they were before.
void add_outputs(Bundle& bundle, std::span<const std::string>) { add_out_like(bundle, "g"); }

void run(const Call& call, const ExecContext& ctx) { kda_verify(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::kda_verify(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return kda_verify_workspace_size(to_args(call), ctx);
}

/// All requests count as live and all tokens as theirs. Of the pools the slots in use are read, of
/// rings and scratch the tokens are written; a conv_scratch with equal strides for tokens and taps
/// holds a token once.
Cost cost(const Bundle& bundle) {
  const auto shape = [&](const char* name) { return bundle.tensors.at(name).shape(); };
  const auto given = [&](const char* name) { return bundle.tensors.contains(name); };
  const auto element = [&](const char* name) {
    return static_cast<double>(size_of(bundle.tensors.at(name).dtype()));
  };
  const auto N = static_cast<double>(shape("state_indices")[0]);
  const auto H = static_cast<double>(shape("beta")[1]);
  const auto tokens = static_cast<double>(shape("beta")[0]);
  constexpr double kToken = 3.0 * kD * 2;  // q, k and v of a head, raw
  const double state = kD * kD * element("state");
  double per_request = state + 3 * kToken;
  double per_token = (3 + 1 + 1 + 1) * kD * 2.0 + 2;
  if (given("ring_k")) per_token += 2 * kD * 2.0 + kD * element("ring_g") + 4;
  if (given("snapshots")) per_token += state;
  if (given("conv_scratch")) {
    const auto& strides = bundle.tensors.at("conv_scratch").strides();
    const bool shares = strides[1] == strides[2];
    per_token += shares ? kToken : 3 * kToken;
    per_request += shares ? 2 * kToken : 0.0;
  }
  return {.bytes = H * (N * per_request + tokens * per_token), .flops = tokens * H * 7.0 * kD * kD};
}

/// N requests of a K3 layer with T tokens each, on the N slots of a pool in shuffled order; rings
/// and conv_scratch are written.
BenchShape bench_shape(std::int64_t N, std::int64_t T, std::int64_t H) {
  return {{{"N", N}, {"T", T}, {"H", H}}, [=] {
            return verify_layer({.N = N, .T = T, .H = H, .indices = shuffled_slots(N), .seed = 5});
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 8, 12), bench_shape(64, 8, 12)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t N : {8, 256}) shapes.push_back(bench_shape(N, 8, 12));
  if (level == Level::kK3) return shapes;
  for (std::int64_t T : {1, 4, 16}) shapes.push_back(bench_shape(64, T, 12));
  shapes.push_back(bench_shape(8, 8, 96));
  return shapes;
}

}  // namespace

const Driver& kda_verify_driver() {
  static const std::vector<ArgSpec> args = specs_of(kda_verify_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = kda_verify_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
