// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_front.h"

#include <algorithm>
#include <cmath>

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/case_list.h"
#include "harness/ops/moe_router.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_front";
constexpr const char* kScalars[] = {"topk", "renormalize", "routed_scaling_factor", "sorted"};

MoeFrontArgs to_args(const Call& call) {
  MoeFrontArgs args;
  set_tensors(moe_front_args(), call, args);
  set_router_args(kOp, call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  for (const char* name : {"hidden", "weight", "bias"})
    if (!bundle.tensors.contains(name)) return;
  const Tensor& hidden = bundle.tensors.at("hidden");
  if (hidden.shape().size() != 2) return;
  add_topk_outputs(kOp, bundle, hidden);
  const std::int64_t L =
      bundle.tensors.at("weight").numel() / std::max<std::int64_t>(hidden.shape().back(), 1) -
      bundle.tensors.at("bias").numel();
  if (!bundle.tensors.contains("routed") && L >= 0)
    bundle.tensors["routed"] = poisoned(DType::kBF16, {hidden.shape()[0], L});
}

void run(const Call& call, const ExecContext& ctx) { moe_front(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::moe_front(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return moe_front_workspace_size(to_args(call), ctx);
}

Cost cost(const Bundle& bundle) {
  const auto tokens = static_cast<double>(bundle.tensors.at("hidden").shape()[0]);
  return {.bytes = bytes_of(bundle),
          .flops = 2.0 * tokens * static_cast<double>(bundle.tensors.at("weight").numel()),
          .tensor_cores = true};
}

struct Options {
  std::int64_t T = 3;
  std::int64_t H = 256;
  std::int64_t E = 896;
  std::int64_t L = 128;
  std::int64_t k = 16;
  bool sorted = false;
};

void add_rest(Bundle& b, const Options& o) {
  b.tensors["topk_weights"] = poisoned(DType::kF32, {o.T, o.k});
  b.tensors["topk_ids"] = poisoned(DType::kI32, {o.T, o.k});
  b.tensors["routed"] = poisoned(DType::kBF16, {o.T, o.L});
  set_router_scalars(b, {.k = o.k});
  b.scalars["sorted"] = o.sorted ? "1" : "0";
}

std::vector<double> logits_of(const Bundle& b, const Options& o, std::int64_t t) {
  std::vector<double> x(static_cast<std::size_t>(o.H));
  for (std::int64_t h = 0; h < o.H; ++h) x[h] = b.tensors.at("hidden").get(t * o.H + h);
  std::vector<double> logits(static_cast<std::size_t>(o.E));
  const auto* const w = reinterpret_cast<const bf16*>(b.tensors.at("weight").storage());
  for (std::int64_t e = 0; e < o.E; ++e)
    for (std::int64_t h = 0; h < o.H; ++h) logits[e] += x[h] * to_float(w[e * o.H + h]);
  return logits;
}

/// Logits of a deviation of 1.5. Rows of hidden are drawn until no fp32 sum can change who is
/// chosen.
Bundle make_bundle(const Options& o, std::uint64_t seed) {
  constexpr double kMargin = 3e-5;
  Random random(seed);
  Bundle b;
  b.tensors["hidden"] = normal(random, DType::kBF16, {o.T, o.H});
  b.tensors["weight"] =
      normal(random, DType::kBF16, {o.E + o.L, o.H}, 1.5 / std::sqrt(static_cast<double>(o.H)));
  b.tensors["bias"] = normal(random, DType::kF32, {o.E}, 0.1);
  const std::vector<double> bias = b.tensors.at("bias").values();
  for (std::int64_t t = 0; t < o.T; ++t)
    while (!is_separated(logits_of(b, o, t), bias, o.k, kMargin))
      for (std::int64_t h = 0; h < o.H; ++h)
        b.tensors.at("hidden").set(t * o.H + h, random.normal());
  add_rest(b, o);
  return b;
}

/// Sums of a few thousand fp32 products, then a sigmoid; and one rounding to bf16.
std::map<std::string, Tolerance> tolerances(const Options&) {
  return {{"topk_weights", {.atol = 1e-5, .rtol = 3e-5}},
          {"routed", {.err_ratio = 2e-3, .row_err_ratio = 4e-3}}};
}

void odd_rows(Bundle& b) {
  for (const char* name : {"hidden", "weight", "topk_weights", "topk_ids", "routed"})
    pad_rows(b, name, 3, 1);
}

std::vector<Case> cases() {
  CaseList<Options> list(make_bundle, tolerances);
  for (std::int64_t T : {0, 1, 2, 3, 17, 64, 130})
    list.add("tokens_" + std::to_string(T), {.T = T});
  list.add("k3_widths", {.T = 2, .H = 7168, .L = 3584}, [](Bundle&) {}, false);
  list.add("k3_hidden", {.T = 1, .H = 7168});
  list.add("sorted", {.T = 5, .sorted = true});
  for (std::int64_t H : {1, 7, 31, 33, 100})
    list.add("hidden_" + std::to_string(H), {.T = 2, .H = H, .E = 3, .L = 2, .k = 1});
  for (std::int64_t L : {0, 1, 3, 4, 12, 65})
    list.add("latent_" + std::to_string(L), {.T = 3, .L = L});
  list.add("choose_8_of_256", {.E = 256, .k = 8});
  list.add("odd_rows", {.T = 5}, odd_rows);
  list.add("odd_rows_odd_widths", {.T = 5, .H = 101, .E = 67, .L = 33, .k = 3}, odd_rows);
  list.add("wider_rows", {.T = 5}, [](Bundle& b) {
    for (const char* name : {"hidden", "weight", "routed"}) pad_rows(b, name, 64, 64);
  });
  list.add("nan_in_one_token", {.T = 4}, [](Bundle& b) { fill_rows_with_nan(b, "hidden", 1, 2); });
  return list.take();
}

/// The weight's values repeat: it would take longer to draw than to multiply.
BenchShape bench_shape(std::int64_t tokens) {
  return {{{"tokens", tokens}, {"H", 7168}, {"E", 896}, {"L", 3584}},
          [=] {
            const Options o = {.T = tokens, .H = 7168, .L = 3584};
            Random random(7);
            Bundle b;
            b.tensors["hidden"] = normal(random, DType::kBF16, {o.T, o.H});
            b.tensors["weight"] =
                repeated_normal(random, DType::kBF16, {o.E + o.L, o.H}, 7168 * 35);
            b.tensors["bias"] = normal(random, DType::kF32, {o.E}, 0.1);
            add_rest(b, o);
            return b;
          },
          tokens > 64};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {16, 256, 1024, 4096}) shapes.push_back(bench_shape(tokens));
  return shapes;
}

}  // namespace

const Driver& moe_front_driver() {
  static const std::vector<ArgSpec> args = specs_of(moe_front_args());
  static const Driver driver = {.name = kOp,
                                .args = args,
                                .scalars = kScalars,
                                .add_outputs = add_outputs,
                                .run = run,
                                .workspace_size = workspace_size,
                                .run_oracle = run_oracle,
                                .cases = cases,
                                .bench_shapes = bench_shapes,
                                .cost = cost};
  return driver;
}

}  // namespace k3::harness
