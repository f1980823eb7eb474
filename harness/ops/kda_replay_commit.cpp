// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_replay_commit.h"

#include <algorithm>

#include "harness/ops/args.h"
#include "harness/ops/kda_layer.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_replay_commit";
constexpr std::int64_t kD = 128;
constexpr const char* kScalars[] = {"lower_bound", "qk_l2norm", "null_index"};

KdaReplayCommitArgs to_args(const Call& call) {
  KdaReplayCommitArgs args;
  set_tensors(kda_replay_commit_args(), call, args);
  args.lower_bound = scalar_float(kOp, call, "lower_bound");
  args.qk_l2norm = scalar_bool(kOp, call, "qk_l2norm", args.qk_l2norm);
  args.null_index = scalar_int(kOp, call, "null_index", args.null_index);
  return args;
}

/// Everything that it writes is a pool, which must be given.
void add_outputs(Bundle& /*bundle*/, std::span<const std::string> /*wanted*/) {}

void run(const Call& call, const ExecContext& ctx) { kda_replay_commit(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::kda_replay_commit(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return kda_replay_commit_workspace_size(to_args(call), ctx);
}

/// Slots in use, read and written once, the accepted tokens of the rings, the windows taken over. A
/// tracked slot is written, too.
Cost cost(const Bundle& bundle) {
  Bundle copy = bundle;  // a handle: the bytes are the bundle's
  Call call;
  for (auto& [name, tensor] : copy.tensors) call.tensors[name] = tensor.view();
  call.scalars = bundle.scalars;
  const KdaReplayCommitProblem p = check(to_args(call));
  const auto element_bytes = [](DType dtype) { return static_cast<double>(size_of(dtype)); };
  const double group = static_cast<double>(p.HV) / p.H;
  const double head = kD * kD * element_bytes(p.state_dtype);
  const double window = 3.0 * p.C * 2.0;
  const double token =
      kD * ((1.0 / group + 1.0) * element_bytes(p.ring_kv_dtype) + element_bytes(p.ring_g_dtype)) +
      4.0;
  Cost cost;
  for (int n = 0; n < p.B; ++n) {
    const int tokens = p.accept_lens[n];
    if (!p.is_live(p.state_indices[n]) || tokens <= 0) continue;
    const bool tracks = p.track_indices.defined() && p.is_live(p.track_indices[n]) &&
                        p.track_steps[n] >= 0 && p.track_steps[n] < tokens;
    const double writes = tracks ? 2.0 : 1.0;
    cost.bytes += p.HV * ((1.0 + writes) * head + tokens * token) + 2.0 * writes * window;
    cost.flops += p.HV * tokens * 5.0 * kD * kD;
  }
  return {.bytes = p.num_layers * cost.bytes, .flops = p.num_layers * cost.flops};
}

BenchShape bench_shape(std::int64_t B, std::int64_t layers) {
  constexpr std::int64_t kH = 12;
  constexpr std::int64_t kA = 4;
  return {{{"B", B}, {"H", kH}, {"layers", layers}, {"A", kA}},
          [=] { return commit_layers({.layers = layers, .B = B, .H = kH, .A = kA, .seed = 5}); }};
}

/// One rank's 69 layers of 64 requests take 4.5 GB: the quick shapes stay below 0.3 GB.
std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 4), bench_shape(64, 4)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t B : {1, 8, 64}) shapes.push_back(bench_shape(B, 69));
  return shapes;
}

}  // namespace

const Driver& kda_replay_commit_driver() {
  static const std::vector<ArgSpec> args = specs_of(kda_replay_commit_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = kda_replay_commit_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
