// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"
#include "k3/ops/kda_types.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kD = 128;
constexpr std::int64_t kC = kKdaChunkTokens;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using Sizes = std::vector<std::int64_t>;

struct Options {
  Sizes lengths = {65};  ///< of the packed sequences
  bool packed = true;    ///< else B = lengths.size(), all of one length
  DType cu = DType::kI32;
  std::int64_t H = 2;
  std::int64_t HV = 2;
  bool has_beta = true;
  DType beta = DType::kF32;
  DType A = DType::kBF16;
  double step = 0.1;  ///< mean log decay of a step, as a positive number
};

/// Both sides are rounded to bf16, from sums that differ by 2^-16 at most in the main: the
/// roundings part in one element of 128, by an rms of 2^-8, which makes 3.5e-4 of the whole.
/// Operands of 8 bits would cost 2e-3.
std::map<std::string, Tolerance> tolerances(const Options& /*o*/) {
  constexpr Tolerance kBF16 = {.err_ratio = 5e-4, .row_err_ratio = 4e-3};
  return {{"w", kBF16}, {"u", kBF16}};
}

/// Where each token stands in its chunk.
Sizes places_of(const Sizes& lengths) {
  Sizes places;
  for (std::int64_t length : lengths)
    for (std::int64_t i = 0; i < length; ++i) places.push_back(i % kC);
  return places;
}

/// The sums of log decays from each chunk's first token on.
Tensor cumulative_gates(Random& random, const Options& o, const Sizes& shape, const Sizes& places) {
  Tensor g = Tensor::dense(DType::kF32, shape);
  const std::int64_t width = o.HV * kD;
  for (std::int64_t at = 0; at < g.numel(); ++at) {
    const bool restarts = places[at / width] == 0;
    g.set(at, (restarts ? 0.0 : g.get(at - width)) - o.step * random.uniform(0.0, 2.0));
  }
  return g;
}

/// Unit diagonal, falling away from it, as an inverse does; NaN past the diagonal.
Tensor inverse_like(Random& random, const Options& o, const Sizes& shape, const Sizes& places) {
  Tensor A = Tensor::dense(o.A, shape);
  for (std::int64_t at = 0; at < A.numel(); ++at) {
    const std::int64_t i = places[at / (o.HV * kC)];
    const std::int64_t j = at % kC;
    const double below = random.normal() / std::sqrt(static_cast<double>(kC));
    A.set(at, j > i ? kNaN : (j == i ? 1.0 : below));
  }
  return A;
}

Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  const Sizes places = places_of(o.lengths);
  const auto N = static_cast<std::int64_t>(o.lengths.size());
  const std::int64_t B = o.packed ? 1 : N;
  const std::int64_t T = B == 0 ? 0 : static_cast<std::int64_t>(places.size()) / B;
  Bundle b;
  b.tensors["k"] = normal(random, DType::kBF16, {B, T, o.H, kD}, 1.0 / std::sqrt(double{kD}));
  b.tensors["v"] = normal(random, DType::kBF16, {B, T, o.HV, kD});
  b.tensors["g"] = cumulative_gates(random, o, {B, T, o.HV, kD}, places);
  if (o.has_beta) b.tensors["beta"] = uniform(random, o.beta, {B, T, o.HV}, 0.0, 1.0);
  b.tensors["A"] = inverse_like(random, o, {B, T, o.HV, kC}, places);
  if (o.packed) {
    Sizes cu = {0};
    for (std::int64_t length : o.lengths) cu.push_back(cu.back() + length);
    b.tensors["cu_seqlens"] = integers(o.cu, cu);
  }
  b.tensors["w"] = poisoned(DType::kBF16, {B, T, o.HV, kD});
  b.tensors["u"] = poisoned(DType::kBF16, {B, T, o.HV, kD});
  return b;
}

/// k and v as slices of one projection row, gaps between the rows and heads of all others.
void make_strided(Bundle& b) {
  const Sizes k = b.tensors.at("k").shape();
  const std::int64_t T = k[1];
  const std::int64_t H = k[2];
  const std::int64_t HV = b.tensors.at("v").shape()[2];
  const std::int64_t pitch = (H + HV) * kD + 64;
  const Sizes merged = {T * pitch, pitch, kD, 1};
  b.tensors["k"] = restrided(b.tensors.at("k"), merged);
  b.tensors["v"] = restrided(b.tensors.at("v"), merged, H * kD);
  const auto gaps = [&](std::int64_t columns, std::int64_t gap) {
    const std::int64_t row = HV * (columns + gap) + 3 * gap;
    return Sizes{T * row + 8 * gap, row, columns + gap, 1};
  };
  b.tensors["g"] = restrided(b.tensors.at("g"), gaps(kD, 4), 8);
  b.tensors["A"] = restrided(b.tensors.at("A"), gaps(kC, 8), 8);
  if (b.tensors.contains("beta"))
    b.tensors["beta"] = restrided(b.tensors.at("beta"), {T * (HV + 5), HV + 5, 1}, 3);
  for (const char* name : {"w", "u"})
    b.tensors[name] = Tensor::strided(DType::kBF16, b.tensors.at(name).shape(), gaps(kD, 8), 16);
}

/// Tokens [begin, end) are NaN in every input: only rows of their sequence may be.
void poison_tokens(Bundle& b, std::int64_t begin, std::int64_t end) {
  for (const char* name : {"k", "v", "g", "beta", "A"}) {
    Tensor& t = b.tensors.at(name);
    const std::int64_t row = t.numel() / t.shape()[1];
    for (std::int64_t i = begin * row; i < end * row; ++i) t.set(i, kNaN);
  }
}

void add_gates(CaseList<Options>& list) {
  list.add("gate_slow", {.lengths = {130}, .step = 1e-3});
  list.add("gate_fast", {.lengths = {130}, .step = 5.0});
  list.add("gate_zero", {.lengths = {70}},
           [](Bundle& b) { set_all(b, "g", [](std::int64_t) { return 0.0; }); });
  list.add("gate_minus_infinity", {.lengths = {70}}, [](Bundle& b) {
    set_all(b, "g", [](std::int64_t i) {
      return i % 5 == 0 ? -std::numeric_limits<double>::infinity() : -0.5;
    });
  });
}

}  // namespace

std::vector<Case> kda_recompute_wu_cases() {
  CaseList<Options> list(make_bundle, tolerances);
  for (std::int64_t T : {0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 127, 128, 129})
    list.add("length_" + std::to_string(T), {.lengths = {T}, .packed = false});
  const Sizes all = {0, 1, 15, 16, 17, 0, 31, 32, 33, 63, 64, 65, 0, 0, 127, 128, 129, 1, 0};
  list.add("ragged_i32", {.lengths = all});
  list.add("ragged_i64", {.lengths = all, .cu = DType::kI64});
  list.add("one_token_sequences", {.lengths = Sizes(200, 1), .H = 1, .HV = 1});
  list.add("all_empty", {.lengths = {0, 0, 0}});
  list.add("no_batch", {.lengths = {}, .packed = false});
  list.add("batch_of_3", {.lengths = {70, 70, 70}, .packed = false});
  list.add("beta_bf16", {.beta = DType::kBF16});
  list.add("no_beta", {.has_beta = false});
  list.add("A_f32", {.A = DType::kF32});
  list.add("A_f32_no_beta", {.has_beta = false, .A = DType::kF32});
  list.add("gva_2", {.lengths = {100, 29}, .H = 2, .HV = 4});
  list.add("gva_3", {.lengths = {100, 29}, .H = 1, .HV = 3});
  list.add("heads_12", {.lengths = {80}, .H = 12, .HV = 12});
  list.add("strided", {.lengths = {65, 30, 1}, .H = 2, .HV = 4}, make_strided);
  list.add("strided_f32", {.lengths = {65, 30, 1}, .H = 3, .HV = 3, .A = DType::kF32},
           make_strided);
  list.add("strided_batch", {.lengths = {66, 66}, .packed = false}, make_strided);
  add_gates(list);
  list.add("large_v", {.lengths = {100}}, [](Bundle& b) {
    Tensor& v = b.tensors.at("v");
    for (std::int64_t i = 0; i < v.numel(); ++i) v.set(i, 1e4 * v.get(i));
  });
  list.add("nan_neighbour", {.lengths = {70, 25, 70}}, [](Bundle& b) { poison_tokens(b, 70, 95); });
  list.add("nan_last_chunk", {.lengths = {128, 3}}, [](Bundle& b) { poison_tokens(b, 128, 131); });
  return list.take();
}

}  // namespace k3::harness
