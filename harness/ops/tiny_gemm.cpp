// SPDX-License-Identifier: Apache-2.0
#include "contract/tiny_gemm.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "tiny_gemm";
constexpr const char* kScalars[] = {"output_dtype"};

TinyGemmArgs to_args(const Call& call) {
  TinyGemmArgs args;
  set_tensors(tiny_gemm_args(), call, args);
  return args;
}

/// `output_dtype` is bf16 or f32.
void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (bundle.tensors.contains("out") || !bundle.tensors.contains("x") ||
      !bundle.tensors.contains("w"))
    return;
  const auto& x = bundle.tensors.at("x").shape();
  const auto& w = bundle.tensors.at("w").shape();
  if (!x.empty() && !w.empty())
    bundle.tensors["out"] =
        poisoned(scalar_dtype(kOp, bundle, "output_dtype", DType::kBF16), {x[0], w[0]});
}

void run(const Call& call, const ExecContext& ctx) { tiny_gemm(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::tiny_gemm(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return tiny_gemm_workspace_size(to_args(call), ctx);
}

Cost cost(const Bundle& bundle) {
  const auto weights = static_cast<double>(bundle.tensors.at("w").numel());
  const auto tokens = static_cast<double>(bundle.tensors.at("x").shape()[0]);
  return {.bytes = bytes_of(bundle), .flops = 2.0 * weights * tokens, .tensor_cores = true};
}

BenchShape bench_shape(std::int64_t M, std::int64_t N, std::int64_t K) {
  return {{{"M", M}, {"N", N}, {"K", K}}, [=] {
            Random random(7);
            Bundle bundle;
            bundle.tensors["x"] = normal(random, DType::kBF16, {M, K});
            bundle.tensors["w"] = repeated_normal(random, DType::kBF16, {N, K}, K);
            bundle.tensors["out"] = poisoned(DType::kBF16, {M, N});
            return bundle;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 896, 7168), bench_shape(16, 896, 7168)};
  if (level == Level::kQuick) return shapes;
  shapes.push_back(bench_shape(4, 896, 7168));
  for (std::int64_t M : {1, 4, 16}) shapes.push_back(bench_shape(M, 144, 7168));
  for (std::int64_t M : {1, 4, 16}) shapes.push_back(bench_shape(M, 1536, 128));
  if (level == Level::kK3) return shapes;
  for (std::int64_t M : {1, 16}) shapes.push_back(bench_shape(M, 128, 7168));
  for (std::int64_t M : {1, 16}) shapes.push_back(bench_shape(M, 256, 4096));
  for (std::int64_t M : {1, 16}) shapes.push_back(bench_shape(M, 3584, 7168));
  return shapes;
}

}  // namespace

const Driver& tiny_gemm_driver() {
  static const std::vector<ArgSpec> args = specs_of(tiny_gemm_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = tiny_gemm_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
