// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "harness/ops/case_list.h"
#include "harness/ops/kda_pieces.h"
#include "harness/ops/ops.h"
#include "k3/ops/kda_types.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kC = kKdaChunkTokens;
constexpr double kReflects = 8.0;
using Sizes = std::vector<std::int64_t>;

struct Options {
  Sizes leading = {3};
  DType L = DType::kF32;
  bool has_beta = true;
  DType beta = DType::kF32;
  DType out = DType::kF32;
  ChunkKeys keys = {};
  double beta_low = 0.0;
  double beta_high = 1.0;
  /// How much the rounding errors of a row may grow on their way down: not at all where the inverse
  /// is a contraction (beta k.k <= 1), as the root of 64 rows where it reflects (beta k.k = 2).
  double growth = 1.0;
};

/// A row is at most 64 multiply-adds of fp32 after each other, 2^-24 each; a row's error over the
/// tensor's size at most four times that. bf16: see docs/design.md.
std::map<std::string, Tolerance> tolerances(const Options& o) {
  if (o.out == DType::kBF16) return {{"out", {.err_ratio = 2e-3, .row_err_ratio = 4e-3}}};
  const double u = kC * 0x1p-24 * o.growth;
  return {{"out", {.err_ratio = u, .row_err_ratio = 4 * u}}};
}

Sizes with(Sizes leading, std::initializer_list<std::int64_t> inner) {
  leading.insert(leading.end(), inner);
  return leading;
}

/// The rows of L are scaled by a beta of their own where the call has none.
Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  Bundle b;
  const Tensor beta = uniform(random, o.beta, with(o.leading, {kC}), o.beta_low, o.beta_high);
  b.tensors["L"] = Tensor::dense(o.L, with(o.leading, {kC, kC}));
  set_chunk_matrices(random, o.keys, beta, b.tensors["L"]);
  if (o.has_beta) b.tensors["beta"] = beta;
  b.tensors["out"] = poisoned(o.out, with(o.leading, {kC, kC}));
  return b;
}

Tensor restrided_output(const Tensor& like, Sizes strides, std::int64_t offset = 0) {
  return Tensor::strided(like.dtype(), like.shape(), std::move(strides), offset);
}

/// Rows and matrices with odd gaps, beta with a stride, bases that nothing aligns.
void make_strided(Bundle& b) {
  b.tensors["L"] = restrided(b.tensors.at("L"), {71 * kC + 5, 71, 1}, 3);
  b.tensors["beta"] = restrided(b.tensors.at("beta"), {3 * kC + 1, 3}, 1);
  b.tensors["out"] = restrided_output(b.tensors.at("out"), {67 * kC + 9, 67, 1}, 7);
}

/// [B, NT, HV] matrices over [B, T, HV, 64], beta over [B, T, HV].
void make_token_major(Bundle& b) {
  const Sizes& shape = b.tensors.at("L").shape();
  const std::int64_t T = shape[1] * kC;
  const std::int64_t HV = shape[2];
  const Sizes strides = {T * HV * kC, kC * HV * kC, kC, HV * kC, 1};
  b.tensors["L"] = restrided(b.tensors.at("L"), strides);
  b.tensors["out"] = restrided_output(b.tensors.at("out"), strides);
  b.tensors["beta"] = restrided(b.tensors.at("beta"), {T * HV, kC * HV, 1, HV});
}

void set_below_diagonal(Bundle& b, std::int64_t first_row, double value) {
  Tensor& L = b.tensors.at("L");
  for (std::int64_t at = 0; at < L.numel(); ++at) {
    const std::int64_t row = at / kC % kC;
    if (row >= first_row && at % kC < row) L.set(at, value);
  }
}

void add_keys(CaseList<Options>& list) {
  const auto keys = [&](const char* name, double beta, const ChunkKeys& k, double growth = 1.0) {
    list.add(name, {.keys = k, .beta_low = beta, .beta_high = beta, .growth = growth});
  };
  keys("keys_random", 0.95, {.log_gate = -0.01});
  keys("keys_positive", 0.5, {.keys = Keys::kPositive, .log_gate = 0.0});
  keys("keys_positive_beta_1", 1.0, {.keys = Keys::kPositive, .log_gate = 0.0});
  keys("keys_near_equal", 0.95, {.keys = Keys::kNearEqual});
  keys("keys_near_equal_beta_099", 0.99, {.keys = Keys::kNearEqual, .log_gate = 0.0});
  keys("keys_equal", 0.95, {.keys = Keys::kEqual});
  keys("keys_equal_beta_099", 0.99, {.keys = Keys::kEqual, .log_gate = 0.0});
  keys("keys_equal_fast_gate", 0.5, {.keys = Keys::kEqual, .log_gate = -0.5});
  keys("beta_2_random", 2.0, {.log_gate = 0.0}, kReflects);
  keys("beta_2_near_equal", 2.0, {.keys = Keys::kNearEqual, .log_gate = 0.0}, kReflects);
  keys("beta_19_equal", 1.9, {.keys = Keys::kEqual, .log_gate = 0.0}, kReflects);
  // Each step multiplies by 1 - 2 * 1.21: entries up to 4e9, against which errors are held.
  keys("long_keys_grow", 2.0, {.keys = Keys::kNearEqual, .norm = 1.1, .log_gate = 0.0}, kReflects);
}

}  // namespace

std::vector<Case> kda_chunk_inverse_cases() {
  CaseList<Options> list(make_bundle, tolerances);
  for (std::int64_t M : {0, 1, 7, 66}) list.add("matrices_" + std::to_string(M), {.leading = {M}});
  list.add("rank_4", {.leading = {2, 3}});
  list.add("rank_5", {.leading = {2, 1, 3}});
  list.add("rank_5_empty", {.leading = {2, 0, 3}});
  for (const auto& [name, dtype] : {std::pair{"f32", DType::kF32}, {"bf16", DType::kBF16}}) {
    list.add(std::string("L_f32_out_") + name, {.out = dtype});
    list.add(std::string("L_bf16_out_") + name, {.L = DType::kBF16, .out = dtype});
    list.add(std::string("no_beta_out_") + name, {.has_beta = false, .out = dtype});
  }
  list.add("beta_bf16", {.beta = DType::kBF16});
  list.add("strided", {}, make_strided);
  list.add("strided_bf16", {.L = DType::kBF16, .beta = DType::kBF16, .out = DType::kBF16},
           make_strided);
  list.add("token_major", {.leading = {2, 3, 2}}, make_token_major);
  list.add("token_major_bf16", {.leading = {1, 2, 3}, .out = DType::kBF16}, make_token_major);
  add_keys(list);
  list.add("zero_L", {}, [](Bundle& b) { set_below_diagonal(b, 0, 0.0); });
  list.add("zero_L_no_beta", {.has_beta = false}, [](Bundle& b) { set_below_diagonal(b, 0, 0.0); });
  list.add("tail_rows", {}, [](Bundle& b) {
    set_below_diagonal(b, 40, 0.0);
    set_all(b, "beta", [](std::int64_t i) { return i % kC < 40 ? 0.5 : 0.0; });
  });
  return list.take();
}

}  // namespace k3::harness
