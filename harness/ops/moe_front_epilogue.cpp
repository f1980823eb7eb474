// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "contract/moe_front.h"
#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/case_list.h"
#include "harness/ops/moe_router.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_front_epilogue";
constexpr const char* kScalars[] = {"topk", "renormalize", "routed_scaling_factor", "sorted"};

MoeFrontEpilogueArgs to_args(const Call& call) {
  MoeFrontEpilogueArgs args;
  set_tensors(moe_front_epilogue_args(), call, args);
  set_router_args(kOp, call, args);
  return args;
}

void add_outputs(Bundle& bundle, std::span<const std::string>) {
  if (!bundle.tensors.contains("merged") || !bundle.tensors.contains("bias")) return;
  const Tensor& merged = bundle.tensors.at("merged");
  if (merged.shape().size() != 2) return;
  add_topk_outputs(kOp, bundle, merged);
  const std::int64_t L = merged.shape()[1] - bundle.tensors.at("bias").numel();
  if (!bundle.tensors.contains("routed") && L >= 0)
    bundle.tensors["routed"] = poisoned(DType::kBF16, {merged.shape()[0], L});
}

void run(const Call& call, const ExecContext& ctx) { moe_front_epilogue(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::moe_front_epilogue(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return moe_front_epilogue_workspace_size(to_args(call), ctx);
}

/// Every tensor once; a router's operations, and a rounding.
Cost cost(const Bundle& bundle) {
  const auto logits = static_cast<double>(bundle.tensors.at("bias").numel()) *
                      static_cast<double>(bundle.tensors.at("merged").shape()[0]);
  return {.bytes = bytes_of(bundle),
          .flops = 6.0 * logits + static_cast<double>(bundle.tensors.at("routed").numel())};
}

struct Options {
  RouterShape router;
  std::int64_t L = 3584;
};

RouterShape router_of(const Options& o) {
  RouterShape shape = o.router;
  shape.scores = DType::kF32;
  shape.columns_behind = o.L;
  return shape;
}

void finish(Bundle& b, const Options& o) {
  b.tensors["routed"] = poisoned(DType::kBF16, {o.router.T, o.L});
  set_router_scalars(b, o.router);
  b.scalars["sorted"] = o.router.sorted ? "1" : "0";
}

Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Bundle b;
  draw_router(b, router_of(o), seed, "merged");
  separate_scores(b, router_of(o), "merged");
  finish(b, o);
  return b;
}

/// The values of routed are the reference's; only a NaN may be another one.
std::map<std::string, Tolerance> tolerances(const Options&) {
  auto result = router_tolerances();
  result["routed"] = {.rtol = 1e-6};
  return result;
}

/// Halfway between two bf16 and beside, infinities, NaN, subnormals, zeros.
void hard_latent(Bundle& b) {
  Tensor& merged = b.tensors.at("merged");
  const double specials[] = {std::nan(""), HUGE_VAL,   -HUGE_VAL,    1.0 + 0x1p-8, 1.0 + 3 * 0x1p-8,
                             -0.0,         0x1p-149,   3.4e38,       -0x1.8p-134,  0x1.01p-126,
                             1.0 - 0x1p-9, 0x1.fffep5, -0x1.feffp-3, 0.0};
  for (std::int64_t t = 0; t < merged.shape()[0]; ++t)
    for (std::int64_t l = t; l < merged.shape()[1] - 896; l += 5)
      merged.set(t * merged.shape()[1] + 896 + l, specials[l / 5 % std::size(specials)]);
}

std::vector<Case> cases() {
  CaseList<Options> list(make_bundle, tolerances);
  for (std::int64_t T : {0, 1, 2, 3, 64, 133, 300})
    list.add("tokens_" + std::to_string(T), {.router = {.T = T}});
  for (std::int64_t L : {0, 1, 4, 8, 9, 128, 136, 7168})
    list.add("latent_" + std::to_string(L), {.router = {.T = 4}, .L = L});
  for (bool sorted : {false, true})
    list.add(sorted ? "as_they_are_sorted" : "as_they_are",
             {.router = {.renormalize = false, .scale = "1", .sorted = sorted}, .L = 64});
  list.add("sorted", {.router = {.sorted = true}, .L = 256});
  list.add("choose_8_of_256", {.router = {.E = 256, .k = 8}, .L = 64});
  list.add("choose_17_of_895", {.router = {.E = 895, .k = 17}, .L = 64});
  list.add("specials", {.router = {.T = 5}, .L = 512}, hard_latent);
  list.add("odd_rows", {.router = {.T = 5}, .L = 200}, [](Bundle& b) {
    for (const char* name : {"merged", "topk_weights", "topk_ids", "routed"})
      pad_rows(b, name, 3, 1);
  });
  list.add("wider_rows", {.router = {.T = 5}, .L = 200}, [](Bundle& b) {
    pad_rows(b, "merged", 36, 8);
    pad_rows(b, "routed", 8, 16);
  });
  list.add("rows_on_8_bytes", {.router = {.T = 5}, .L = 200},
           [](Bundle& b) { pad_rows(b, "merged", 2, 0); });
  std::vector<Case> all = list.take();
  for (const RouterEdit& edit : router_edits())
    all.push_back({edit.name, true,
                   [&edit] {
                     const Options o = {.router = {.T = 4}, .L = 128};
                     Bundle b;
                     draw_router(b, router_of(o), 23, edit, "merged");
                     finish(b, o);
                     return b;
                   },
                   tolerances({})});
  return all;
}

BenchShape bench_shape(std::int64_t tokens) {
  return {{{"tokens", tokens}, {"E", 896}, {"topk", 16}, {"L", 3584}}, [=] {
            const Options o = {.router = {.T = tokens, .scale = "1"}};
            Bundle b;
            draw_router(b, router_of(o), 7, "merged");
            finish(b, o);
            return b;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1), bench_shape(64), bench_shape(1024)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {256, 4096}) shapes.push_back(bench_shape(tokens));
  return shapes;
}

}  // namespace

const Driver& moe_front_epilogue_driver() {
  static const std::vector<ArgSpec> args = specs_of(moe_front_epilogue_args());
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
