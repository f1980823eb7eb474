// SPDX-License-Identifier: Apache-2.0
#include "harness/ops/moe_router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace k3::harness {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLogitDeviation = 1.5;

/// scores[t, e] = value(t, e, what it was); columns behind the experts stay.
template <class Value>
void edit_scores(Tensor& scores, const Tensor& bias, Value value) {
  const std::int64_t E = bias.numel();
  const std::int64_t columns = scores.shape()[1];
  for (std::int64_t t = 0; t < scores.shape()[0]; ++t)
    for (std::int64_t e = 0; e < E; ++e)
      scores.set(t * columns + e, value(t, e, scores.get(t * columns + e)));
}

template <class Value>
void edit_bias(Tensor& bias, Value value) {
  for (std::int64_t e = 0; e < bias.numel(); ++e) bias.set(e, value(e, bias.get(e)));
}

/// Ranks are then those of the corrections, bit for bit.
void shut(Tensor& scores, const Tensor& bias) {
  edit_scores(scores, bias, [](auto, auto, double) { return -kInf; });
}

const RouterEdit kEdits[] = {
    {"all_equal", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](auto, auto, double) { return 0.5; });
       b.fill(0.0);
     }},
    {"few_values", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](std::int64_t t, std::int64_t e, double) {
         return 0.125 * static_cast<double>(((e * 2654435761LL + t * 40503) >> 7) % 8);
       });
       b.fill(0.0);
     }},
    {"far_below", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b,
                   [](auto, std::int64_t e, double) { return -90.0 - static_cast<double>(e % 7); });
       b.fill(0.0);
     }},
    {"every_third_nan", true,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](auto, std::int64_t e, double x) { return e % 3 == 0 ? kNaN : x; });
     }},
    {"all_but_ten_nan", true,
     [](Tensor& s, Tensor& b) {
       const std::int64_t kept = b.numel() - 10;
       edit_scores(s, b, [=](auto, std::int64_t e, double x) { return e < kept ? kNaN : x; });
     }},
    {"rows_of_nan", true,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](std::int64_t t, std::int64_t e, double x) {
         return t == 1 || (t == 2 && e % 45 == 0) ? kNaN : x;
       });
     }},
    {"corrections_below_nan", false,
     [](Tensor&, Tensor& b) { edit_bias(b, [](auto, double x) { return x * 1e31 - 1e31; }); }},
    {"corrections_infinite", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](auto, std::int64_t e, double) { return e % 100 == 3 ? kNaN : 1.0; });
       edit_bias(b, [](std::int64_t e, double) { return e == 500 ? kInf : e == 7 ? 0.5 : -kInf; });
     }},
    {"scores_infinite", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](std::int64_t t, std::int64_t e, double) {
         return (t + e) % 3 == 0 ? kInf : -kInf;
       });
     }},
    {"scores_minus_infinite", false, [](Tensor& s, Tensor& b) { shut(s, b); }},
    {"zeros_of_both_signs", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](std::int64_t t, std::int64_t e, double) {
         return t % 2 == 1 ? -kInf : e % 2 == 0 ? -0.0 : 0.0;
       });
       edit_bias(b, [](std::int64_t e, double) { return e % 3 == 0 ? 0.0 : -0.0; });
     }},
    {"corrections_subnormal", false,
     [](Tensor& s, Tensor& b) {
       shut(s, b);
       edit_bias(b, [](std::int64_t e, double) {
         return static_cast<double>(e * 37 % 896 - 448) * 0x1p-149;
       });
     }},
    {"one_unit_apart", false,
     [](Tensor& s, Tensor& b) {
       shut(s, b);
       edit_bias(b, [](std::int64_t e, double) { return 0.5 + (e % 50 == 49 ? 0x1p-24 : 0.0); });
     }},
    {"seventeen_equal_at_the_cut", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](auto, std::int64_t e, double) { return e % 52 == 51 ? 1.0 : -1.0; });
       b.fill(0.25);
     }},
    {"plateau", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](auto, std::int64_t e, double) {
         return e == 7 || e == 300 ? 2.0 : e == 800 ? 1.5 : 0.25;
       });
       b.fill(0.0);
     }},
    {"saturated", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b,
                   [](auto, std::int64_t e, double) { return 40.0 + static_cast<double>(e); });
       b.fill(0.0);
     }},
    {"descending", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b,
                   [](auto, std::int64_t e, double) { return -0.01 * static_cast<double>(e); });
       b.fill(0.0);
     }},
    {"ascending", false,
     [](Tensor& s, Tensor& b) {
       const std::int64_t E = b.numel();
       edit_scores(s, b,
                   [=](auto, std::int64_t e, double) { return 0.01 * static_cast<double>(e - E); });
       b.fill(0.0);
     }},
    // Large ones eight apart, and distinct.
    {"clustered", false,
     [](Tensor& s, Tensor& b) {
       edit_scores(s, b, [](auto, std::int64_t e, double) {
         return e % 8 == 0 ? 1.0 + static_cast<double>(e / 8 * 37 % 112) / 64.0
                           : -1.0 - static_cast<double>(e % 50) / 64.0;
       });
       b.fill(0.0);
     }},
};

/// Of the first k + 1 in the order of their ranks, one too close to the one before it; -1 if none.
std::int64_t first_too_close(std::span<const double> logits, std::span<const double> bias,
                             std::int64_t k, double margin) {
  const auto experts = static_cast<std::int64_t>(bias.size());
  std::vector<float> biased;
  std::vector<std::int64_t> order;
  for (std::int64_t e = 0; e < experts; ++e) {
    order.push_back(e);
    biased.push_back(static_cast<float>(1.0 / (1.0 + std::exp(-logits[e]))) +
                     static_cast<float>(bias[e]));
  }
  const auto rank = [&](std::int64_t e) { return std::isnan(biased[e]) ? -1e30F : biased[e]; };
  const auto end = order.begin() + std::min(k + 1, experts);
  std::partial_sort(order.begin(), end, order.end(), [&](std::int64_t i, std::int64_t j) {
    return rank(i) > rank(j) || (rank(i) == rank(j) && i < j);
  });
  for (auto next = order.begin() + 1; next < end; ++next) {
    const std::int64_t a = *(next - 1);
    const std::int64_t b = *next;
    const bool same = logits[a] == logits[b] && bias[a] == bias[b];
    if (!same && std::fabs(biased[a] - biased[b]) <= margin) return b;
  }
  return -1;
}

}  // namespace

void set_router_scalars(Bundle& bundle, const RouterShape& shape) {
  bundle.scalars["topk"] = std::to_string(shape.k);
  bundle.scalars["renormalize"] = shape.renormalize ? "1" : "0";
  bundle.scalars["routed_scaling_factor"] = shape.scale;
}

void draw_router(Bundle& bundle, const RouterShape& shape, std::uint64_t seed,
                 const char* scores_name) {
  Random random(seed);
  bundle.tensors[scores_name] =
      normal(random, shape.scores, {shape.T, shape.E + shape.columns_behind}, kLogitDeviation);
  bundle.tensors["bias"] = normal(random, DType::kF32, {shape.E}, 0.1);
  bundle.tensors["topk_weights"] = poisoned(DType::kF32, {shape.T, shape.k});
  bundle.tensors["topk_ids"] = poisoned(DType::kI32, {shape.T, shape.k});
}

bool is_separated(std::span<const double> logits, std::span<const double> bias, std::int64_t k,
                  double margin) {
  return first_too_close(logits, bias, k, margin) < 0;
}

void separate_scores(Bundle& bundle, const RouterShape& shape, const std::string& scores_name) {
  constexpr double kMargin = 4e-6;
  Tensor& scores = bundle.tensors.at(scores_name);
  const std::vector<double> bias = bundle.tensors.at("bias").values();
  const std::int64_t columns = shape.E + shape.columns_behind;
  Random random(977);
  std::vector<double> row(bias.size());
  for (std::int64_t t = 0; t < shape.T; ++t) {
    for (std::int64_t e = 0; e < shape.E; ++e) row[e] = scores.get(t * columns + e);
    for (;;) {
      const std::int64_t e = first_too_close(row, bias, shape.k, kMargin);
      if (e < 0) break;
      scores.set(t * columns + e, kLogitDeviation * random.normal());
      row[e] = scores.get(t * columns + e);
    }
  }
}

void add_topk_outputs(const char* op, Bundle& bundle, const Tensor& scores) {
  if (scores.shape().size() != 2) return;
  Call call;
  call.scalars = bundle.scalars;
  const std::int64_t topk = scalar_int(op, call, "topk", 16);
  if (topk < 0 || topk > 1024) return;  // far past what the contract allows
  for (const auto& [name, dtype] :
       {std::pair{"topk_weights", DType::kF32}, {"topk_ids", DType::kI32}})
    if (!bundle.tensors.contains(name))
      bundle.tensors[name] = poisoned(dtype, {scores.shape()[0], topk});
}

std::map<std::string, Tolerance> router_tolerances() {
  return {{"topk_weights", {.atol = 1e-6, .rtol = 1e-5}}};
}

std::span<const RouterEdit> router_edits() { return kEdits; }

void draw_router(Bundle& bundle, const RouterShape& shape, std::uint64_t seed,
                 const RouterEdit& edit, const char* scores_name) {
  draw_router(bundle, shape, seed, scores_name);
  edit.edit(bundle.tensors.at(scores_name), bundle.tensors.at("bias"));
  if (edit.separate) separate_scores(bundle, shape, scores_name);
}

}  // namespace k3::harness
