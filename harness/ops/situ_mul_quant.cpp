// SPDX-License-Identifier: Apache-2.0
#include "contract/situ_mul_quant.h"

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "situ_mul_quant";
constexpr const char* kScalars[] = {"group_size", "scale_ue8m0",   "transposed", "swizzle",
                                    "beta",       "round_to_bf16", "linear_beta"};

SituMulQuantArgs to_args(const Call& call) {
  SituMulQuantArgs args;
  set_tensors(situ_mul_quant_args(), call, args);
  args.group_size = scalar_int(kOp, call, "group_size", args.group_size);
  args.scale_ue8m0 = scalar_bool(kOp, call, "scale_ue8m0", args.scale_ue8m0);
  args.transposed = scalar_bool(kOp, call, "transposed", args.transposed);
  args.swizzle = scalar_bool(kOp, call, "swizzle", args.swizzle);
  args.round_to_bf16 = scalar_bool(kOp, call, "round_to_bf16", args.round_to_bf16);
  args.beta = scalar_float(kOp, call, "beta", args.beta);
  args.linear_beta = scalar_float(kOp, call, "linear_beta", args.linear_beta);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (!bundle.tensors.contains("input")) return;
  auto shape = bundle.tensors.at("input").shape();
  if (shape.size() < 2) return;
  shape.back() /= 2;
  if (!bundle.tensors.contains("output_q"))
    bundle.tensors["output_q"] = poisoned(DType::kF8E4M3, shape);
  shape.back() /= kSituGroup;
  if (bundle.tensors.contains("output_s")) return;
  if (!to_args({.tensors = {}, .scalars = bundle.scalars}).transposed) {
    bundle.tensors["output_s"] = poisoned(DType::kF32, shape);
    return;
  }
  shape.back() /= 4;  // four bytes in a word
  std::swap(shape.back(), shape[shape.size() - 2]);
  bundle.tensors["output_s"] = poisoned(DType::kI32, shape);
}

void run(const Call& call, const ExecContext& ctx) { situ_mul_quant(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::situ_mul_quant(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return situ_mul_quant_workspace_size(to_args(call), ctx);
}

/// What the live rows move. Useful operations: the formula with each transcendental as one, and a
/// comparison, a product and a conversion.
Cost cost(const Bundle& bundle) {
  const Tensor& codes = bundle.tensors.at("output_q");
  const Tensor& scales = bundle.tensors.at("output_s");
  const auto N = static_cast<double>(codes.shape().back());
  double live = static_cast<double>(codes.shape()[codes.shape().size() - 2]);
  double list_bytes = 0.0;
  if (const auto masked = bundle.tensors.find("masked_m"); masked != bundle.tensors.end()) {
    live = 0.0;
    for (double rows : masked->second.values()) live += rows;
    list_bytes = 4.0 * static_cast<double>(masked->second.numel());
  }
  const double scale_bytes = scales.dtype() == DType::kI32 ? 1.0 : 4.0;
  return {.bytes = live * (5.0 * N + scale_bytes * N / kSituGroup) + list_bytes,
          .flops = 13.0 * live * N};
}

struct Shape {
  std::int64_t tokens = 1;
  std::int64_t N = 3072;
  std::int64_t E = 896;  ///< 0: the dense form
  std::int64_t Tp = 128;
  bool ue8m0 = true;  ///< transposed, too
};

/// 16 rows a token, spread over the experts in a fixed, uneven way: at most Tp each.
std::vector<std::int64_t> spread(const Shape& s) {
  Random random(3);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(s.E));
  for (std::int64_t left = 16 * s.tokens; left > 0;) {
    std::int64_t& of_expert = rows[random.next() % rows.size()];
    if (of_expert >= s.Tp) continue;
    ++of_expert;
    --left;
  }
  return rows;
}

Bundle bench_bundle(const Shape& s) {
  Random random(7);
  Bundle b;
  const std::int64_t G = s.N / kSituGroup;
  std::vector<std::int64_t> rows = s.E == 0 ? std::vector<std::int64_t>{} : std::vector{s.E};
  auto words = rows;
  rows.push_back(s.E == 0 ? s.tokens : s.Tp);
  words.insert(words.end(), {G / 4, rows.back()});
  const auto with = [&](std::int64_t columns) {
    auto shape = rows;
    shape.push_back(columns);
    return shape;
  };
  b.tensors["input"] = repeated_normal(random, DType::kBF16, with(2 * s.N), 2 * s.N);
  if (s.E > 0) b.tensors["masked_m"] = integers(DType::kI32, spread(s));
  b.tensors["output_q"] = poisoned(DType::kF8E4M3, with(s.N));
  b.tensors["output_s"] = s.ue8m0 ? poisoned(DType::kI32, words) : poisoned(DType::kF32, with(G));
  const char* const ue8m0 = s.ue8m0 ? "1" : "0";
  b.scalars = {{"scale_ue8m0", ue8m0}, {"transposed", ue8m0}};
  return b;
}

BenchShape bench_shape(const Shape& s) {
  return {.sizes = {{"tokens", s.tokens},
                    {"N", s.N},
                    {"experts", s.E},
                    {"Tp", s.E == 0 ? s.tokens : s.Tp},
                    {"ue8m0", s.ue8m0 ? 1 : 0}},
          .make = [s] { return bench_bundle(s); },
          .cuda_only = s.E > 0 && s.Tp > 16};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes;
  for (std::int64_t tokens : {1, 16}) shapes.push_back(bench_shape({.tokens = tokens, .Tp = 16}));
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {256, 4096}) shapes.push_back(bench_shape({.tokens = tokens}));
  shapes.push_back(bench_shape({.tokens = 4096, .ue8m0 = false}));
  for (std::int64_t tokens : {1, 256}) shapes.push_back(bench_shape({.tokens = tokens, .E = 0}));
  if (level == Level::kK3) return shapes;
  for (std::int64_t tokens : {1, 256})
    shapes.push_back(bench_shape({.tokens = tokens, .N = 6144, .E = 0, .ue8m0 = false}));
  shapes.push_back(bench_shape({.tokens = 256, .E = 112, .Tp = 128}));
  return shapes;
}

}  // namespace

const Driver& situ_mul_quant_driver() {
  static const std::vector<ArgSpec> args = specs_of(situ_mul_quant_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = situ_mul_quant_cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
