// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/inputs.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

/// bf16 has 8 significant bits, so 1.5 units in the last place are at most 1.5 * 2^-7 of the value.
/// An fp32 sigmoid may flush to 0 below exp(-87), which `largest` = max |beta * soft(up)| scales
/// up.
Case make_case(std::string name, bool quick, std::function<Bundle()> make, double largest = 100.0) {
  const Tolerance tolerance = {.atol = largest * std::exp(-87.0), .rtol = 1.5 * 0x1p-7};
  return {std::move(name), quick, std::move(make), {{"out", tolerance}}};
}

Bundle bundle_of(Tensor input, Tensor out, const char* beta = "4", const char* linear = "25") {
  Bundle bundle;
  bundle.tensors["input"] = std::move(input);
  bundle.tensors["out"] = std::move(out);
  bundle.scalars = {{"beta", beta}, {"linear_beta", linear}};
  return bundle;
}

Case dense(std::int64_t tokens, std::int64_t D, const char* linear = "25", bool quick = true) {
  const std::string name = "dense_" + std::to_string(tokens) + "x" + std::to_string(D) +
                           (*linear == '\0' ? "_no_linear_beta" : "");
  return make_case(name, quick, [=] {
    Random random(static_cast<std::uint64_t>(tokens * 100003 + D));
    return bundle_of(normal(random, DType::kBF16, {tokens, 2 * D}, 3.0),
                     poisoned(DType::kBF16, {tokens, D}), "4", linear);
  });
}

/// Rows that are slices of wider rows, starting `offset` elements into the buffer.
Case strided(const char* name, std::int64_t D, std::int64_t in_pitch, std::int64_t in_offset,
             std::int64_t out_pitch, std::int64_t out_offset) {
  return make_case(name, true, [=] {
    Random random(11);
    const Tensor values = normal(random, DType::kBF16, {7, 2 * D}, 3.0);
    return bundle_of(restrided(values, {in_pitch, 1}, in_offset),
                     Tensor::strided(DType::kBF16, {7, D}, {out_pitch, 1}, out_offset));
  });
}

/// Every pair of special and ordinary values of gate and up. Without a soft cap on up the gates
/// below -170 are left out: there no fp32 step holds the sigmoid, and times a huge up there is no
/// common answer.
Bundle specials(const char* beta, const char* linear) {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {
      0.0,   -0.0,  inf,  -inf, std::nan(""), 1e-40, -1e-40, 0x1p-126, 1e-6,   0.01, -0.01,
      0.016, 1.0,   -1.0, 4.0,  -6.0,         9.0,   20.0,   -20.0,    25.0,   50.0, -56.0,
      -60.0, 200.0, 1e4,  3e38, -87.0,        -88.0, -100.0, -170.0,   -500.0, -1e4, -3e38};
  const std::int64_t n = std::size(values);
  const std::int64_t gates = *linear == '\0' ? n - 3 : n;
  Tensor input = Tensor::dense(DType::kBF16, {gates, 2 * n});
  for (std::int64_t row = 0; row < gates; ++row)
    for (std::int64_t d = 0; d < n; ++d) {
      input.set(row * 2 * n + d, values[row]);
      input.set(row * 2 * n + n + d, values[d]);
    }
  return bundle_of(input, poisoned(DType::kBF16, {gates, n}), beta, linear);
}

/// All 65,536 bf16 gates against four values of up.
Bundle every_gate(const char* linear) {
  constexpr std::int64_t kGates = 65536;
  const double ups[] = {1.0, -3.5, 24.0, 200.0};
  Tensor input = Tensor::dense(DType::kBF16, {4, 2 * kGates});
  auto* bits = reinterpret_cast<std::uint16_t*>(input.storage());
  for (int row = 0; row < 4; ++row)
    for (std::int64_t i = 0; i < kGates; ++i) {
      bits[row * 2 * kGates + i] = static_cast<std::uint16_t>(i);
      input.set(row * 2 * kGates + kGates + i, ups[row]);
    }
  return bundle_of(input, poisoned(DType::kBF16, {4, kGates}), "4", linear);
}

/// All 65,536 bf16 values of up against one gate.
Bundle every_up() {
  constexpr std::int64_t kUps = 65536;
  Tensor input = Tensor::dense(DType::kBF16, {1, 2 * kUps});
  auto* bits = reinterpret_cast<std::uint16_t*>(input.storage());
  for (std::int64_t i = 0; i < kUps; ++i) {
    input.set(i, 1.5);
    bits[kUps + i] = static_cast<std::uint16_t>(i);
  }
  return bundle_of(input, poisoned(DType::kBF16, {1, kUps}));
}

Bundle ranks() {
  Random random(5);
  return bundle_of(normal(random, DType::kBF16, {2, 3, 1, 5, 48}, 2.0),
                   poisoned(DType::kBF16, {2, 3, 1, 5, 24}));
}

}  // namespace

std::vector<Case> situ_and_mul_cases() {
  std::vector<Case> cases;
  for (std::int64_t tokens : {0, 1, 2, 17, 128}) cases.push_back(dense(tokens, 3072));
  for (std::int64_t D : {1, 7, 8, 9, 255, 768, 1024, 4224, 6144, 33792})
    cases.push_back(dense(3, D));
  cases.push_back(dense(0, 0));
  cases.push_back(dense(5, 0));
  for (std::int64_t tokens : {1, 17}) cases.push_back(dense(tokens, 3072, ""));
  cases.push_back(dense(512, 6144, "25", false));
  cases.push_back(strided("rows_of_a_wider_projection", 1024, 2064, 0, 1024, 0));
  cases.push_back(strided("odd_pitch", 1024, 2051, 0, 1027, 0));
  cases.push_back(strided("base_off_by_one", 1024, 2064, 1, 1024, 0));
  cases.push_back(strided("out_off_by_one", 1024, 2064, 0, 1040, 1));
  cases.push_back(strided("gap_rows_both", 512, 1032, 8, 520, 8));
  cases.push_back(make_case("specials", true, [] { return specials("4", "25"); }));
  cases.push_back(make_case("specials_no_linear_beta", true, [] { return specials("4", ""); }));
  cases.push_back(make_case("specials_beta_1", true, [] { return specials("1", "25"); }));
  cases.push_back(
      make_case("specials_negative_betas", true, [] { return specials("-3", "-0.5"); }));
  cases.push_back(
      make_case("specials_large_betas", true, [] { return specials("1000", "1e6"); }, 1e9));
  cases.push_back(make_case("every_gate", true, [] { return every_gate("25"); }));
  cases.push_back(
      make_case("every_gate_no_linear_beta", true, [] { return every_gate(""); }, 800.0));
  cases.push_back(make_case("every_up", true, every_up));
  cases.push_back(make_case("rank_5", true, ranks));
  return cases;
}

}  // namespace k3::harness
