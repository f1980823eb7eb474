// SPDX-License-Identifier: Apache-2.0
#include "contract/attn_res_mix.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "attn_res_mix";
constexpr const char* kScalars[] = {"num_bank_rows", "eps", "write_prefix"};

AttnResMixArgs to_args(const Call& call) {
  AttnResMixArgs args;
  set_tensors(attn_res_mix_args(), call, args);
  args.num_bank_rows = scalar_int(kOp, call, "num_bank_rows", args.num_bank_rows);
  args.eps = scalar_float(kOp, call, "eps", args.eps);
  args.write_prefix = scalar_bool(kOp, call, "write_prefix", args.write_prefix);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) { add_out_like(bundle, "prefix"); }

void run(const Call& call, const ExecContext& ctx) { attn_res_mix(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::attn_res_mix(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return attn_res_mix_workspace_size(to_args(call), ctx);
}

/// Each row of a token and its output, and three weights. An element of a row is squared, scored
/// and mixed; one of the mixture squared and scaled twice.
Cost cost(const Bundle& bundle) {
  const auto& shape = bundle.tensors.at("prefix").shape();
  const double elements = static_cast<double>(shape[0]) * static_cast<double>(shape[1]);
  const double rows = std::stod(bundle.scalars.at("num_bank_rows")) + 1.0;
  const double written = bundle.scalars.at("write_prefix") == "1" ? 2.0 : 1.0;
  const double weights = bundle.tensors.contains("score_weight") ? 2.0 : 3.0;
  return {.bytes = 2.0 * (elements * (rows + written) + weights * static_cast<double>(shape[1])),
          .flops = elements * (6.0 * rows + 4.0)};
}

BenchShape bench_shape(std::int64_t tokens, std::int64_t rows, bool write_prefix = false) {
  constexpr std::int64_t kBankRows = 8;
  constexpr std::int64_t kH = 7168;
  return {{{"tokens", tokens}, {"bank_rows", rows}, {"write_prefix", write_prefix ? 1 : 0}}, [=] {
            Random random(7);
            Bundle b;
            const auto values = [&](std::vector<std::int64_t> shape) {
              return repeated_normal(random, DType::kBF16, std::move(shape), kBankRows * kH);
            };
            b.tensors["bank"] = values({tokens, kBankRows, kH});
            b.tensors["prefix"] = values({tokens, kH});
            b.tensors["score_norm_weight"] = normal(random, DType::kBF16, {kH}, 0.1, 1.0);
            b.tensors["score_proj"] = normal(random, DType::kBF16, {kH}, 0.012);
            b.tensors["out_norm_weight"] = normal(random, DType::kBF16, {kH}, 0.1, 1.0);
            b.tensors["out"] = poisoned(DType::kBF16, {tokens, kH});
            b.scalars = {{"num_bank_rows", std::to_string(rows)},
                         {"eps", "1e-5"},
                         {"write_prefix", write_prefix ? "1" : "0"}};
            return b;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1, 8), bench_shape(256, 8)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {16, 4096}) shapes.push_back(bench_shape(tokens, 8));
  for (std::int64_t rows : {1, 4}) shapes.push_back(bench_shape(4096, rows));
  if (level == Level::kK3) return shapes;
  for (std::int64_t tokens : {4, 64, 128, 512, 1024}) shapes.push_back(bench_shape(tokens, 8));
  for (std::int64_t rows : {1, 4}) shapes.push_back(bench_shape(1, rows));
  for (std::int64_t rows : {1, 4}) shapes.push_back(bench_shape(256, rows));
  shapes.push_back(bench_shape(4096, 7, true));
  return shapes;
}

}  // namespace

const Driver& attn_res_mix_driver() {
  static const std::vector<ArgSpec> args = specs_of(attn_res_mix_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = attn_res_mix_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
