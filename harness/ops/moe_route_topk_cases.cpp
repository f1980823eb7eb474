// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "harness/ops/moe_router.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

void finish(Bundle& bundle, const RouterShape& shape) {
  set_router_scalars(bundle, shape);
  bundle.scalars["sorted"] = shape.sorted ? "1" : "0";
}

Bundle drawn(const RouterShape& shape) {
  Bundle bundle;
  draw_router(bundle, shape, static_cast<std::uint64_t>(shape.T * 1009 + shape.E));
  separate_scores(bundle, shape);
  finish(bundle, shape);
  return bundle;
}

/// How the name of a case says its shape.
std::string name_of(const RouterShape& shape) {
  return "tokens_" + std::to_string(shape.T) + "_choose_" + std::to_string(shape.k) + "_of_" +
         std::to_string(shape.E) + (shape.scores == DType::kF32 ? "_f32" : "_bf16") +
         (shape.sorted ? "_sorted" : "");
}

class Cases {
 public:
  void add(
      std::string name, const RouterShape& shape, bool quick = true,
      void (*change)(Bundle&) = [](Bundle&) {}) {
    cases_.push_back({std::move(name), quick,
                      [=] {
                        Bundle bundle = drawn(shape);
                        change(bundle);
                        return bundle;
                      },
                      router_tolerances()});
  }
  void add(const RouterEdit& edit, const RouterShape& shape) {
    cases_.push_back({std::string(edit.name) + "_" + name_of(shape), true,
                      [=] {
                        Bundle bundle;
                        draw_router(bundle, shape, 31, edit);
                        finish(bundle, shape);
                        return bundle;
                      },
                      router_tolerances()});
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
};

/// Rows of 4-byte elements between others, off every alignment but the element's.
void pad(Bundle& bundle) {
  for (const char* name : {"scores", "topk_weights", "topk_ids"}) {
    const Tensor& t = bundle.tensors.at(name);
    bundle.tensors[name] = restrided(t, {t.shape()[1] + 3, 1}, 1);
  }
  bundle.tensors["bias"] = restrided(bundle.tensors.at("bias"), {1}, 1);
}

}  // namespace

std::vector<Case> moe_route_topk_cases() {
  Cases cases;
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const bool sorted : {false, true}) {
      for (const std::int64_t T : {0, 1, 3, 8, 129}) {
        const RouterShape shape = {.T = T, .scores = dtype, .sorted = sorted};
        cases.add(name_of(shape), shape);
      }
      // Other choices of 896 and other numbers of experts.
      for (const auto& [k, E] : {std::pair{1, 1},
                                 {1, 2},
                                 {2, 2},
                                 {8, 128},
                                 {8, 256},
                                 {9, 257},
                                 {16, 16},
                                 {16, 895},
                                 {16, 897},
                                 {1, 896},
                                 {15, 896},
                                 {17, 896},
                                 {63, 64},
                                 {64, 64},
                                 {64, 65},
                                 {64, 1000}}) {
        const RouterShape shape = {.E = E, .k = k, .scores = dtype, .sorted = sorted};
        cases.add(name_of(shape), shape);
      }
      for (const RouterEdit& edit : router_edits())
        cases.add(edit, {.T = 5, .scores = dtype, .sorted = sorted});
    }
  for (const RouterEdit& edit : router_edits())
    cases.add(edit, {.E = 1100, .k = 40, .scores = DType::kF32});
  for (const std::int64_t E : {10240, 10241, 30011}) {
    const RouterShape shape = {.T = 2, .E = E};
    cases.add(name_of(shape), shape);
  }
  cases.add("as_they_are", {.renormalize = false, .scale = "1"});
  cases.add("scaled_only", {.renormalize = false});
  cases.add("renormalized_only", {.scale = "1"});
  cases.add("scale_0", {.scale = "0"});
  cases.add("scale_negative", {.scale = "-2.446"});
  cases.add("odd_rows", {.T = 7}, true, pad);
  cases.add("odd_rows_f32", {.T = 7, .scores = DType::kF32, .sorted = true}, true, pad);
  cases.add("odd_rows_of_100", {.T = 7, .E = 100, .k = 5}, true, pad);
  cases.add("logits_far_below", {.T = 4, .scores = DType::kF32}, true, [](Bundle& b) {
    // The best are subnormal, and the others 0 where exp overflows.
    Tensor& scores = b.tensors.at("scores");
    for (std::int64_t i = 0; i < scores.numel(); ++i)
      scores.set(i, -87.5 - static_cast<double>(i % 896 * 5 % 896) / 16.0);
    b.tensors.at("bias").fill(0.0);
    b.scalars["renormalize"] = "0";
  });
  cases.add("tokens_2000", {.T = 2000}, false);
  cases.add("tokens_2000_sorted_f32", {.T = 2000, .scores = DType::kF32, .sorted = true}, false);
  return cases.take();
}

}  // namespace k3::harness
