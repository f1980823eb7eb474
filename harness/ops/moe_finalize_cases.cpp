// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/inputs.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

struct Options {
  std::int64_t T = 3;
  std::int64_t topk = 16;
  std::int64_t H = 264;
  std::int64_t P = 61;
  DType weights = DType::kBF16;
  double dropped = 0.1;  ///< share of slots
  bool flat_idx = false;
  bool integers = false;  ///< values whose sums fp32 holds
};

Bundle make(const Options& o, std::uint64_t seed) {
  Random random(seed);
  const auto draw = [&](double size) {
    return o.integers ? static_cast<double>(random.next() % 9) - 4.0 : size * random.normal();
  };
  Bundle b;
  b.tensors["experts_out"] = filled(DType::kBF16, {o.P, o.H}, [&] { return draw(1.0); });
  b.tensors["topk_weights"] = filled(o.weights, {o.T, o.topk}, [&] { return draw(0.25); });
  const auto row = [&] {
    if (o.P == 0 || random.uniform() < o.dropped) return -1.0;
    return static_cast<double>(random.next() % static_cast<std::uint64_t>(o.P));
  };
  const std::vector<std::int64_t> flat = {o.T * o.topk};
  const std::vector<std::int64_t> square = {o.T, o.topk};
  b.tensors["idx"] = filled(DType::kI32, o.flat_idx ? flat : square, row);
  b.tensors["out"] = poisoned(DType::kBF16, {o.T, o.H});
  return b;
}

/// One unit in the last place of bf16, 2^-7 of a value, where the fp32 sum falls to the other side
/// of a tie; the sum's own error is below topk 2^-24 of the largest partial one.
std::map<std::string, Tolerance> tolerances(const Options& o) {
  if (o.integers) return {{"out", {.exact = true}}};
  const auto topk = static_cast<double>(o.topk);
  return {{"out", {.atol = 0x1p-24 * topk * (2.0 * topk + 1.0), .rtol = 0x1p-7}}};
}

std::string size_text(const Options& o) {
  return std::to_string(o.T) + "x" + std::to_string(o.topk) + "x" + std::to_string(o.H);
}

/// The values of a tensor under rows `pitch` apart, NaN between them.
void pitch_rows(Bundle& b, const char* name, std::int64_t pitch, std::int64_t offset) {
  Tensor& t = b.tensors.at(name);
  t = restrided(t, {pitch, 1}, offset, kNaNGaps);
}

/// Rows that no slot names hold NaN, and dropped slots have NaN as weight: nothing of either shows.
void poison_unused(Bundle& b) {
  const Tensor idx = b.tensors.at("idx");
  Tensor& rows = b.tensors.at("experts_out");
  Tensor& weights = b.tensors.at("topk_weights");
  const std::int64_t P = rows.shape()[0];
  std::vector<bool> used(static_cast<std::size_t>(P));
  for (std::int64_t i = 0; i < idx.numel(); ++i) {
    const auto row = static_cast<std::int64_t>(idx.get(i));
    if (row < 0)
      weights.set(i, std::nan(""));
    else
      used[static_cast<std::size_t>(row)] = true;
  }
  for (std::int64_t r = 0; r < P; ++r)
    if (!used[static_cast<std::size_t>(r)]) fill_rows_with_nan(b, "experts_out", r, r + 1);
}

/// Row r of experts_out holds one value; a token takes two of them.
Bundle specials() {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {0.0, -0.0, inf, -inf, std::nan(""), 1e-40, 3e38, 1.0, -1.0, 0x1p-126};
  constexpr std::int64_t kP = std::size(values);
  const Options o = {.T = kP * kP, .topk = 2, .H = 9, .P = kP};
  Bundle b = make(o, 1);
  for (std::int64_t r = 0; r < kP; ++r)
    for (std::int64_t h = 0; h < o.H; ++h) b.tensors.at("experts_out").set(r * o.H + h, values[r]);
  for (std::int64_t t = 0; t < o.T; ++t) {
    b.tensors.at("idx").set(2 * t, static_cast<double>(t / kP));
    b.tensors.at("idx").set(2 * t + 1, static_cast<double>(t % kP));
    b.tensors.at("topk_weights").set(2 * t, 1.0);
    b.tensors.at("topk_weights").set(2 * t + 1, t % 3 == 0 ? 0.0 : 0.5);
  }
  return b;
}

}  // namespace

std::vector<Case> moe_finalize_cases() {
  CaseList<Options> list(make, tolerances);
  const auto add = [&](
                       const std::string& name, const Options& o,
                       std::function<void(Bundle&)> edit = [](Bundle&) {},
                       bool quick = true) { list.add(name, o, std::move(edit), quick); };
  const auto sized = [&](const Options& o, bool quick = true) {
    add("random_" + size_text(o), o, [](Bundle&) {}, quick);
  };
  for (std::int64_t T : {0, 1, 2, 17}) sized({.T = T, .H = 3584, .P = 40}, T <= 2);
  for (std::int64_t topk : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 33}) sized({.topk = topk});
  for (std::int64_t H : {0, 1, 2, 7, 8, 9, 15, 16, 4096, 4097, 8200}) sized({.topk = 6, .H = H});
  sized({.T = 300, .H = 1024, .P = 4800}, false);
  add("integers", {.integers = true});
  add("f32_weights", {.weights = DType::kF32});
  add("f32_weights_of_many_slots", {.topk = 21, .weights = DType::kF32});
  add("flat_idx", {.flat_idx = true});
  add("no_slot_dropped", {.dropped = 0.0});
  add("most_slots_dropped", {.T = 40, .dropped = 0.9});
  add("all_slots_dropped", {.dropped = 1.1});
  add("no_rows", {.P = 0});
  add("one_row_for_all", {.P = 1});
  add("very_negative_idx", {}, [](Bundle& b) {
    for (std::int64_t i = 0; i < b.tensors.at("idx").numel(); i += 3)
      b.tensors.at("idx").set(i, -2147483648.0);
  });
  add("unused_is_nan", {.T = 5, .P = 200, .dropped = 0.3}, poison_unused);
  const auto pitched = [&](const char* name, std::int64_t rows, std::int64_t weights,
                           std::int64_t out, std::int64_t offset) {
    add(name, {.integers = true}, [=](Bundle& b) {
      pitch_rows(b, "experts_out", rows, offset);
      pitch_rows(b, "topk_weights", weights, offset);
      pitch_rows(b, "out", out, offset);
    });
  };
  pitched("aligned_gaps", 280, 24, 272, 8);
  pitched("odd_rows", 267, 17, 265, 0);
  pitched("bases_off_by_one", 264, 16, 264, 1);
  std::vector<Case> cases = list.take();
  cases.push_back({"specials", true, specials, {{"out", {.atol = 1e-300}}}});
  return cases;
}

}  // namespace k3::harness
