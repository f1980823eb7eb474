// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_route_quant.h"

#include <algorithm>
#include <cmath>

#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/moe_router.h"
#include "harness/ops/ops.h"
#include "oracle/oracle.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "moe_route_quant";
constexpr const char* kScalars[] = {"topk", "renormalize", "routed_scaling_factor", "group_size",
                                    "scale_dtype"};

MoeRouteQuantArgs to_args(const Call& call) {
  MoeRouteQuantArgs args;
  set_tensors(moe_route_quant_args(), call, args);
  set_router_args(kOp, call, args);
  args.group_size = scalar_int(kOp, call, "group_size", args.group_size);
  return args;
}

/// Row-major scales, `scale_dtype` f32 or i32.
void add_outputs(Bundle& bundle, std::span<const std::string> wanted) {
  if (!bundle.tensors.contains("scores") || !bundle.tensors.contains("x")) return;
  add_topk_outputs(kOp, bundle, bundle.tensors.at("scores"));
  const bool wants_packed = std::find(wanted.begin(), wanted.end(), "packed") != wanted.end();
  if (wants_packed && !bundle.tensors.contains("packed") && bundle.tensors.contains("topk_ids"))
    bundle.tensors["packed"] = poisoned(DType::kI32, bundle.tensors.at("topk_ids").shape());
  const auto& shape = bundle.tensors.at("x").shape();
  if (!bundle.tensors.contains("x_q")) bundle.tensors["x_q"] = poisoned(DType::kF8E4M3, shape);
  const int group = to_args({.tensors = {}, .scalars = bundle.scalars}).group_size;
  if (!bundle.tensors.contains("x_s"))
    bundle.tensors["x_s"] = poisoned_scales(kOp, bundle, shape, group);
}

void run(const Call& call, const ExecContext& ctx) { moe_route_quant(to_args(call), ctx); }
void run_oracle(const Call& call) { oracle::moe_route_quant(to_args(call)); }
std::size_t workspace_size(const Call& call, const ExecContext& ctx) {
  return moe_route_quant_workspace_size(to_args(call), ctx);
}

/// Every tensor once; the operations of the ops it is made of.
Cost cost(const Bundle& bundle) {
  return {.bytes = bytes_of(bundle),
          .flops = 6.0 * static_cast<double>(bundle.tensors.at("scores").numel()) +
                   3.0 * static_cast<double>(bundle.tensors.at("x").numel())};
}

struct Options {
  RouterShape router;
  std::int64_t D = 3584;
  std::int64_t group = 32;
  DType x = DType::kBF16;
  bool words = true;  ///< x_s, four scales each
};

void finish(Bundle& b, const Options& o) {
  Random random(11);
  const std::int64_t T = o.router.T;
  const std::int64_t G = o.D / o.group;
  b.tensors["x"] = normal(random, o.x, {T, o.D}, 2.0);
  b.tensors["packed"] = poisoned(DType::kI32, {T, o.router.k});
  b.tensors["x_q"] = poisoned(DType::kF8E4M3, {T, o.D});
  b.tensors["x_s"] =
      o.words ? poisoned(DType::kI32, {T, (G + 3) / 4}) : poisoned(DType::kF32, {T, G});
  set_router_scalars(b, o.router);
  b.scalars["group_size"] = std::to_string(o.group);
}

/// Columns from 512 on of rows of 4608, as the merged down-projection of a layer gives them.
void slice_x(Bundle& b) { b.tensors["x"] = restrided(b.tensors.at("x"), {4608, 1}, 512); }

/// NaN, infinities and a group of zeros among the values.
void hard_x(Bundle& b) {
  Tensor& x = b.tensors.at("x");
  const double specials[] = {std::nan(""), HUGE_VAL, -HUGE_VAL, 0.0, 1e-30};
  for (std::int64_t i = 0; i < x.numel(); i += 97) x.set(i, specials[i / 97 % 5]);
  for (std::int64_t i = 64; i < 96; ++i) x.set(i, 0.0);
}

void odd_rows(Bundle& b) {
  for (const char* name : {"scores", "x", "topk_weights", "topk_ids", "packed", "x_q", "x_s"}) {
    const Tensor& t = b.tensors.at(name);
    b.tensors[name] = restrided(t, {t.shape()[1] + 3, 1}, 1);
  }
}

class Cases {
 public:
  void add(std::string name, const Options& o, void (*change)(Bundle&) = [](Bundle&) {}) {
    cases_.push_back({std::move(name), true,
                      [=] {
                        Bundle b;
                        draw_router(b, o.router, 17);
                        separate_scores(b, o.router);
                        finish(b, o);
                        change(b);
                        return b;
                      },
                      tolerances()});
  }
  void add(const RouterEdit& edit, const Options& o) {
    cases_.push_back({edit.name, true,
                      [=] {
                        Bundle b;
                        draw_router(b, o.router, 19, edit);
                        finish(b, o);
                        return b;
                      },
                      tolerances()});
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  /// A packed weight is as far from the oracle's as the weight itself, and then rounded: the ids
  /// stand in the upper half of the word, and one unit of bf16 is one of the word.
  static std::map<std::string, Tolerance> tolerances() {
    auto result = router_tolerances();
    result["packed"] = {.atol = 1.0};
    return result;
  }

  std::vector<Case> cases_;
};

std::vector<Case> cases() {
  Cases list;
  for (std::int64_t T : {0, 1, 2, 8, 64, 65, 200})
    for (DType dtype : {DType::kBF16, DType::kF32})
      list.add("tokens_" + std::to_string(T) + "_" + name_of(dtype),
               {.router = {.T = T, .scores = dtype, .scale = "2.446"}, .x = dtype});
  for (const RouterEdit& edit : router_edits()) list.add(edit, {.router = {.scale = "2.446"}});
  for (std::int64_t group : {16, 48, 64, 128, 256})
    list.add("group_" + std::to_string(group),
             {.D = 11 * group, .group = group, .words = group != 64});
  list.add("columns_of_a_wider_row", {.router = {.T = 8}}, slice_x);
  list.add("specials_of_x", {}, hard_x);
  list.add("odd_rows", {.router = {.T = 5}}, odd_rows);
  list.add("float_scales", {.words = false});
  list.add("no_columns", {.D = 0});
  list.add("width_4096", {.D = 4096});
  list.add("choose_8_of_256", {.router = {.E = 256, .k = 8}});
  list.add("without_packed", {}, [](Bundle& b) { b.tensors.erase("packed"); });
  list.add("as_they_are", {.router = {.renormalize = false, .scale = "1"}});
  return list.take();
}

BenchShape bench_shape(std::int64_t tokens) {
  return {{{"tokens", tokens}, {"E", 896}, {"topk", 16}, {"D", 3584}}, [=] {
            const Options o = {.router = {.T = tokens, .scale = "1"}};
            Bundle b;
            draw_router(b, o.router, 7);
            finish(b, o);
            return b;
          }};
}

std::vector<BenchShape> bench_shapes(Level level) {
  std::vector<BenchShape> shapes = {bench_shape(1), bench_shape(64)};
  if (level == Level::kQuick) return shapes;
  for (std::int64_t tokens : {8, 256, 1024}) shapes.push_back(bench_shape(tokens));
  return shapes;
}

}  // namespace

const Driver& moe_route_quant_driver() {
  static const std::vector<ArgSpec> args = specs_of(moe_route_quant_args());
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
