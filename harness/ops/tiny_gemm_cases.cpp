// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/inputs.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

struct Sizes {
  std::int64_t M;
  std::int64_t N;
  std::int64_t K;
  DType out = DType::kF32;
};

/// A chain of K fp32 additions drifts by about 2^-24 sqrt(K) of the sum; tensor cores cut off
/// instead of rounding, which drifts one way: 2^-24 a product of 16. Rounding to bf16 costs 1.6e-3.
Tolerance tolerance_of(const Sizes& s, bool tensor_cores) {
  const auto K = static_cast<double>(s.K);
  const double sums = 0x1p-24 * (8.0 + (tensor_cores ? K / 16.0 : std::sqrt(K)));
  const double ratio = sums + (s.out == DType::kBF16 ? 2e-3 : 0.0);
  return {.err_ratio = ratio, .row_err_ratio = ratio};
}

std::string name_of(const char* kind, const Sizes& s) {
  return std::string(kind) + "_" + std::to_string(s.M) + "x" + std::to_string(s.N) + "x" +
         std::to_string(s.K) + (s.out == DType::kF32 ? "_f32" : "_bf16");
}

Bundle bundle_of(Tensor x, Tensor w, Tensor out) {
  Bundle b;
  b.tensors["x"] = std::move(x);
  b.tensors["w"] = std::move(w);
  b.tensors["out"] = std::move(out);
  return b;
}

Case random_case(const Sizes& s, bool quick = true) {
  return {name_of("random", s),
          quick,
          [=] {
            Random random(static_cast<std::uint64_t>(s.M * 1000003 + s.N * 1009 + s.K));
            return bundle_of(normal(random, DType::kBF16, {s.M, s.K}, 0.125),
                             normal(random, DType::kBF16, {s.N, s.K}, 0.125),
                             poisoned(s.out, {s.M, s.N}));
          },
          {{"out", tolerance_of(s, false)}},
          {{"out", tolerance_of(s, true)}}};
}

/// Small integers, whose sums fp32 holds: no order of additions rounds, so every bit is known.
Bundle integer_bundle(const Sizes& s) {
  Random random(static_cast<std::uint64_t>(s.M * 31 + s.N * 37 + s.K));
  const auto draw = [&] { return static_cast<double>(random.next() % 9) - 4.0; };
  return bundle_of(filled(DType::kBF16, {s.M, s.K}, draw), filled(DType::kBF16, {s.N, s.K}, draw),
                   poisoned(s.out, {s.M, s.N}));
}

Case exact_case(std::string name, bool quick, std::function<Bundle()> make) {
  return {std::move(name), quick, std::move(make), {{"out", {.exact = true}}}};
}

Case integer_case(const Sizes& s, bool quick = true) {
  return exact_case(name_of("integers", s), quick, [=] { return integer_bundle(s); });
}

/// Rows `gap` elements apart from their neighbours, NaN between them, from an offset.
Tensor with_gaps(const Tensor& t, std::int64_t gap, std::int64_t offset) {
  return restrided(t, {t.shape()[1] + gap, 1}, offset, kNaNGaps);
}

struct Gaps {
  std::int64_t x;
  std::int64_t w;
  std::int64_t out;
  std::int64_t x_offset = 0;
  std::int64_t w_offset = 0;
  std::int64_t out_offset = 0;
};

Case gap_case(const char* name, const Sizes& s, const Gaps& gaps) {
  return exact_case(name, true, [=] {
    const Bundle dense = integer_bundle(s);
    return bundle_of(with_gaps(dense.tensors.at("x"), gaps.x, gaps.x_offset),
                     with_gaps(dense.tensors.at("w"), gaps.w, gaps.w_offset),
                     with_gaps(dense.tensors.at("out"), gaps.out, gaps.out_offset));
  });
}

/// Sums of one product each, and zeros: x has one element a row that is not 0, at k = m.
Bundle single_products(DType out) {
  const double xs[] = {1.0, -1.0, 0x1p-130, 0x1p120, 3.3e38, -0x1p-126, 1.5, -2.0};
  const double ws[] = {0x1p-126, 0x1p-130, 3.3e38, -1.0, 0x1p-20, 0.75, 1.0, 0.0};
  constexpr std::int64_t kM = std::size(xs);
  constexpr std::int64_t kN = std::size(ws);
  constexpr std::int64_t kK = 512;
  Tensor x = constant(DType::kBF16, {kM, kK}, 0.0);
  Tensor w = constant(DType::kBF16, {kN, kK}, 1.0);
  for (std::int64_t m = 0; m < kM; ++m) x.set(m * kK + m * 61, xs[m]);
  for (std::int64_t n = 0; n < kN; ++n)
    for (std::int64_t m = 0; m < kM; ++m) w.set(n * kK + m * 61, ws[n]);
  return bundle_of(x, w, poisoned(out, {kM, kN}));
}

/// A NaN or an infinity in one row of x or w reaches the outputs of that row alone.
Bundle one_bad_row(double bad, bool in_x, std::int64_t N, std::int64_t K) {
  Bundle b = integer_bundle({5, N, K});
  Tensor& t = b.tensors.at(in_x ? "x" : "w");
  for (std::int64_t i = 0; i < b.tensors.at("w").numel(); ++i)
    if (b.tensors.at("w").get(i) == 0.0) b.tensors.at("w").set(i, 1.0);
  for (std::int64_t i = 0; i < b.tensors.at("x").numel(); ++i)
    if (b.tensors.at("x").get(i) == 0.0) b.tensors.at("x").set(i, 1.0);
  t.set(3 * K + K / 2, bad);
  return b;
}

}  // namespace

std::vector<Case> tiny_gemm_cases() {
  std::vector<Case> cases;
  // The products of a K3 layer.
  for (const DType out : {DType::kF32, DType::kBF16})
    for (std::int64_t M : {1, 2, 7, 16}) {
      cases.push_back(random_case({M, 144, 7168, out}, M <= 2));
      cases.push_back(random_case({M, 1536, 128, out}, M <= 2));
    }
  for (std::int64_t M : {1, 4, 8, 9, 16}) cases.push_back(random_case({M, 896, 7168}, false));
  cases.push_back(random_case({3, 256, 4096}));
  // More than eight rows at the borders of the plans, and where few columns fit.
  for (const Sizes& s : {Sizes{10, 176, 7176},
                         {9, 177, 1064},
                         {16, 256, 4096},
                         {10, 351, 7176},
                         {10, 352, 7176},
                         {16, 400, 32768},
                         {16, 780, 16384}})
    cases.push_back(random_case(s, false));
  cases.push_back(random_case({2, 8, 16384}));
  cases.push_back(random_case({2, 3, 40000}));
  // Every number of rows, both halves of a tile.
  for (std::int64_t M = 0; M <= 16; ++M) {
    cases.push_back(integer_case({M, 40, 512}));
    cases.push_back(integer_case({M, 40, 128, DType::kBF16}));
  }
  // Edges of tiles, of chunks and of parts of k.
  for (std::int64_t N : {0, 1, 7, 8, 9, 55, 57, 63, 65})
    for (std::int64_t K : {0, 1, 8, 31, 32, 33, 40, 256, 264, 1000})
      cases.push_back(integer_case({3, N, K}));
  for (std::int64_t K : {16, 64, 72, 248, 257, 504, 520, 2040, 2056, 3000, 7160, 7176})
    cases.push_back(integer_case({10, 17, K}));
  cases.push_back(integer_case({16, 3000, 72}, false));
  cases.push_back(integer_case({16, 1000, 2048}, false));
  for (std::int64_t N : {353, 719, 721})
    for (std::int64_t K : {264, 1064, 7176}) cases.push_back(integer_case({10, N, K}, false));
  for (std::int64_t N : {19, 400, 780}) cases.push_back(random_case({13, N, 9000}, false));
  cases.push_back(integer_case({0, 0, 0}));
  // Strides, gaps full of NaN, bases off their alignment.
  for (const std::int64_t K : {128, 1024}) {
    const std::string k = std::to_string(K);
    const Sizes f32 = {11, 21, K};
    const Sizes bf16 = {11, 21, K, DType::kBF16};
    cases.push_back(gap_case(("gaps_of_16_bytes_k" + k).c_str(), f32, {8, 16, 3, 8, 24, 1}));
    cases.push_back(gap_case(("gaps_bf16_k" + k).c_str(), bf16, {8, 16, 3, 8, 24, 1}));
    cases.push_back(gap_case(("odd_rows_of_x_k" + k).c_str(), f32, {1, 0, 0}));
    cases.push_back(gap_case(("odd_rows_of_w_k" + k).c_str(), f32, {0, 3, 0}));
    cases.push_back(gap_case(("x_off_by_one_k" + k).c_str(), f32, {8, 8, 0, 1, 0, 0}));
    cases.push_back(gap_case(("w_off_by_one_k" + k).c_str(), f32, {8, 8, 0, 0, 1, 0}));
    cases.push_back(gap_case(("ragged_k" + k).c_str(), {11, 21, K - 3}, {5, 7, 9, 1, 2, 3}));
  }
  cases.push_back(gap_case("ragged_with_aligned_gaps", {11, 21, 1016}, {24, 8, 9, 8, 16, 3}));
  cases.push_back(gap_case("more_columns_with_gaps", {11, 401, 1016}, {24, 8, 9, 8, 16, 3}));
  cases.push_back(gap_case("many_columns_with_gaps", {11, 781, 1016}, {24, 8, 9, 8, 16, 3}));
  // Equal but for the sign of a zero, which depends on the order of additions.
  for (const DType out : {DType::kF32, DType::kBF16})
    cases.push_back({out == DType::kF32 ? "single_products_f32" : "single_products_bf16",
                     true,
                     [=] { return single_products(out); },
                     {{"out", {.atol = 1e-300}}}});
  const double inf = std::numeric_limits<double>::infinity();
  const auto add_bad_rows = [&](std::int64_t N, std::int64_t K) {
    for (const bool in_x : {false, true}) {
      const std::string where =
          std::string(in_x ? "_in_x_n" : "_in_w_n") + std::to_string(N) + "_k" + std::to_string(K);
      // Which NaN comes out is the machine's choice.
      cases.push_back({"nan" + where,
                       true,
                       [=] { return one_bad_row(std::nan(""), in_x, N, K); },
                       {{"out", {.atol = 1e-30}}}});
      cases.push_back({"inf" + where,
                       true,
                       [=] { return one_bad_row(inf, in_x, N, K); },
                       {{"out", {.atol = 1e-30}}}});
    }
  };
  for (const std::int64_t K : {96, 1000, 1024}) add_bad_rows(19, K);
  for (const std::int64_t N : {400, 780}) add_bad_rows(N, 1000);
  return cases;
}

}  // namespace k3::harness
