// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "harness/driver.h"
#include "harness/inputs.h"

/// Router inputs for the test cases and benches of the ops that route.
namespace k3::harness {

struct RouterShape {
  std::int64_t T = 3;
  std::int64_t E = 896;
  std::int64_t k = 16;
  DType scores = DType::kBF16;
  bool renormalize = true;
  const char* scale = "2.5";
  bool sorted = false;
  std::int64_t columns_behind = 0;  ///< of scores, behind the E logits
};

/// The scalars of a router without `sorted`.
void set_router_scalars(Bundle& bundle, const RouterShape& shape);

/// Reads them, and `sorted` where the op has it.
template <class Args>
void set_router_args(const char* op, const Call& call, Args& args) {
  args.topk = scalar_int(op, call, "topk", args.topk);
  args.renormalize = scalar_bool(op, call, "renormalize", args.renormalize);
  args.routed_scaling_factor =
      scalar_float(op, call, "routed_scaling_factor", args.routed_scaling_factor);
  if constexpr (requires { args.sorted; })
    args.sorted = scalar_bool(op, call, "sorted", args.sorted);
}

/// Normal logits (tensor `scores_name`) and corrections, topk_weights and topk_ids.
void draw_router(Bundle& bundle, const RouterShape& shape, std::uint64_t seed,
                 const char* scores_name = "scores");

/// Whether of the best k + 1 of a token any two have the same inputs, or biased scores further
/// apart than `margin`.
bool is_separated(std::span<const double> logits, std::span<const double> bias, std::int64_t k,
                  double margin);

/// Draws logits anew until of the best k + 1 of a token any two have the same inputs, or are so far
/// apart that no sigmoid within a few units in the last place changes their order.
void separate_scores(Bundle& bundle, const RouterShape& shape,
                     const std::string& scores_name = "scores");

/// Adds topk_weights and topk_ids of as many rows as `scores` has, where the bundle lacks them.
void add_topk_outputs(const char* op, Bundle& bundle, const Tensor& scores);

/// Weights: a sigmoid within 1e-5 of its value. Ids are exact.
std::map<std::string, Tolerance> router_tolerances();

/// Scores that a router must get right: `edit` changes a drawn bundle of at least 3 tokens and 896
/// experts.
struct RouterEdit {
  const char* name;
  bool separate;  ///< what is left of the drawn values needs `separate_scores`
  void (*edit)(Tensor& scores, Tensor& bias);
};
std::span<const RouterEdit> router_edits();

/// Draws, edits and separates.
void draw_router(Bundle& bundle, const RouterShape& shape, std::uint64_t seed,
                 const RouterEdit& edit, const char* scores_name = "scores");

}  // namespace k3::harness
