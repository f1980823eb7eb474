// SPDX-License-Identifier: Apache-2.0
#include "contract/vision_rope.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "harness/ops/vision.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "vision_rope";

VisionRopeArgs to_args(const Call& call) {
  VisionRopeArgs args;
  set_tensors(vision_rope_args(), call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  for (const auto& [in, out] : {std::pair{"q", "q_out"}, {"k", "k_out"}}) {
    const auto found = bundle.tensors.find(in);
    if (found == bundle.tensors.end() || bundle.tensors.contains(out)) continue;
    bundle.tensors[out] = poisoned(found->second.dtype(), found->second.shape());
  }
}

void run(const Call& call, const ExecContext& ctx) { vision_rope(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::vision_rope(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return vision_rope_workspace_size(to_args(call), ctx);
}

/// q, k, their outputs and the factors; six operations a pair of q and of k.
Cost cost(const Bundle& bundle) {
  const Tensor& q = bundle.tensors.at("q");
  return {.bytes = 4.0 * bytes_of(q) + bytes_of(bundle.tensors.at("freqs")),
          .flops = 6.0 * static_cast<double>(q.numel())};
}

/// K3's twelve heads of 128, q and k as they stand in [tokens, 3, 12, 128].
BenchShape bench_shape(std::int64_t tokens) {
  return {{{"tokens", tokens}}, [=] { return rope_bundle({.T = tokens, .interleaved = true}, 7); }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(256)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {1, 16, 4096}) shapes.push_back(bench_shape(tokens));
  if (level == Level::kK3) return shapes;
  for (std::int64_t tokens : {64, 1024, 16384}) shapes.push_back(bench_shape(tokens));
  return shapes;
}

}  // namespace

const Driver& vision_rope_driver() {
  static const std::vector<ArgSpec> args = specs_of(vision_rope_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = {},
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = vision_rope_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
