// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_recompute_wu.h"

#include <algorithm>

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/kda_pieces.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_recompute_wu";
constexpr std::int64_t kD = 128;
constexpr std::int64_t kC = kKdaChunkTokens;

KdaRecomputeWuArgs to_args(const Call& call) {
  KdaRecomputeWuArgs args;
  set_tensors(kda_recompute_wu_args(), call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (!bundle.tensors.contains("v")) return;
  for (const char* name : {"w", "u"})
    if (!bundle.tensors.contains(name))
      bundle.tensors[name] = poisoned(DType::kBF16, bundle.tensors.at("v").shape());
}

void run(const Call& call, const ExecContext& ctx) { kda_recompute_wu(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::kda_recompute_wu(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return kda_recompute_wu_workspace_size(to_args(call), ctx);
}

/// Pairs of a token and one before it, or itself, in its chunk.
double pairs(std::int64_t length) {
  const std::int64_t rest = length % kC;
  return static_cast<double>(length / kC * (kC * (kC + 1) / 2) + rest * (rest + 1) / 2);
}

/// Bytes: every tensor once, of A the part on and below the diagonal. A multiply-add a channel of w
/// and of u for each pair of tokens.
Cost cost(const Bundle& bundle) {
  const Tensor& v = bundle.tensors.at("v");
  const auto cu = bundle.tensors.find("cu_seqlens");
  double token_pairs = static_cast<double>(v.shape()[0]) * pairs(v.shape()[1]);
  if (cu != bundle.tensors.end()) {
    token_pairs = 0.0;
    for (std::int64_t n = 0; n + 1 < cu->second.numel(); ++n)
      token_pairs += pairs(static_cast<std::int64_t>(cu->second.get(n + 1) - cu->second.get(n)));
  }
  token_pairs *= static_cast<double>(v.shape()[2]);
  Cost cost;
  for (const auto& [name, tensor] : bundle.tensors)
    cost.bytes += (name == "A" ? token_pairs : static_cast<double>(tensor.numel())) *
                  static_cast<double>(size_of(tensor.dtype()));
  cost.flops = 4.0 * kD * token_pairs;
  return cost;
}

BenchShape bench_shape(std::int64_t T, std::int64_t H) {
  return {{{"T", T}, {"H", H}}, [=] {
            Random random(11);
            Bundle b;
            const std::int64_t period = kC * H * kD;
            for (const char* name : {"k", "v"})
              b.tensors[name] = repeated_normal(random, DType::kBF16, {1, T, H, kD}, period);
            const Tensor g = uniform(random, DType::kF32, {period}, -8.0, 0.0);
            b.tensors["g"] = repeated(g, {1, T, H, kD});
            b.tensors["beta"] = uniform(random, DType::kF32, {1, T, H}, 0.0, 1.0);
            b.tensors["A"] = repeated_normal(random, DType::kBF16, {1, T, H, kC}, kC * H * kC);
            b.tensors["cu_seqlens"] = integers(DType::kI32, {0, T});
            for (const char* name : {"w", "u"})
              b.tensors[name] = poisoned(DType::kBF16, {1, T, H, kD});
            return b;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) { return chunk_bench_shapes(level, bench_shape); }

}  // namespace

const Driver& kda_recompute_wu_driver() {
  static const std::vector<ArgSpec> args = specs_of(kda_recompute_wu_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = {},
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = kda_recompute_wu_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
