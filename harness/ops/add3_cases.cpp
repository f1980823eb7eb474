// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/inputs.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

using Sizes = std::vector<std::int64_t>;

/// Every rounding is part of the contract, so every bit is.
Case make_case(std::string name, std::function<Bundle()> make, bool quick = true) {
  return {std::move(name), quick, std::move(make), {{"out", {.exact = true}}}};
}

Bundle bundle_of(Tensor a, Tensor b, Tensor c, Tensor out) {
  Bundle bundle;
  bundle.tensors["a"] = std::move(a);
  bundle.tensors["b"] = std::move(b);
  bundle.tensors["c"] = std::move(c);
  bundle.tensors["out"] = std::move(out);
  return bundle;
}

Case dense(std::string name, const Sizes& shape, bool quick = true) {
  return make_case(
      std::move(name),
      [=] {
        Random random(3);
        // Of different sizes, so that both roundings count.
        Tensor a = normal(random, DType::kBF16, shape, 1.0);
        Tensor b = normal(random, DType::kBF16, shape, 8.0);
        Tensor c = normal(random, DType::kBF16, shape, 0.25);
        return bundle_of(a, b, c, poisoned(DType::kBF16, shape));
      },
      quick);
}

struct Layout {
  Sizes strides;
  std::int64_t offset = 0;
};

/// Strides of each tensor's own. Gaps hold NaN, so that a read of one shows.
Case strided(const char* name, const Sizes& shape, const Layout& a, const Layout& b,
             const Layout& c, const Layout& out) {
  return make_case(name, [=] {
    Random random(11);
    const auto at = [&](const Layout& layout) {
      return restrided(normal(random, DType::kBF16, shape, 3.0), layout.strides, layout.offset,
                       kNaNGaps);
    };
    Tensor a_values = at(a);
    Tensor b_values = at(b);
    Tensor c_values = at(c);
    return bundle_of(a_values, b_values, c_values,
                     Tensor::strided(DType::kBF16, shape, out.strides, out.offset));
  });
}

/// Each combination of special and ordinary values: ties of either sum, sums that leave the range,
/// subnormal ones, zeros of both signs. With `non_finite`, infinities and NaN too.
Bundle combinations(bool non_finite) {
  std::vector<double> values = {0.0,      -0.0,      1.0,     -1.0,     1.0078125, 0x1p-8,
                                -0x1p-8,  0x1.fep-9, 256.0,   257.0,    -255.5,    0x1p-126,
                                0x1p-133, -0x1p-133, 3.38e38, -3.38e38, 1.5,       3.0};
  if (non_finite)
    values = {std::numeric_limits<double>::infinity(),
              -std::numeric_limits<double>::infinity(),
              std::numeric_limits<double>::quiet_NaN(),
              1.0,
              -0.0,
              3.38e38};
  const auto n = std::ssize(values);
  const auto at = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  const Sizes shape = {n, n, n};
  Bundle b = bundle_of(Tensor::dense(DType::kBF16, shape), Tensor::dense(DType::kBF16, shape),
                       Tensor::dense(DType::kBF16, shape), poisoned(DType::kBF16, shape));
  for (std::int64_t i = 0; i < n * n * n; ++i) {
    b.tensors.at("a").set(i, at(i / n / n));
    b.tensors.at("b").set(i, at(i / n % n));
    b.tensors.at("c").set(i, at(i % n));
  }
  return b;
}

}  // namespace

std::vector<Case> add3_cases() {
  std::vector<Case> cases;
  for (std::int64_t length : {0, 1, 7, 8, 9, 31, 32, 33, 255, 7168})
    cases.push_back(dense("row_of_" + std::to_string(length), {length}));
  cases.push_back(dense("tokens_9_of_112", {9, 112}));
  cases.push_back(dense("tokens_0", {0, 7168}));
  cases.push_back(dense("width_0", {5, 0}));
  cases.push_back(dense("tokens_17", {17, 7168}));
  cases.push_back(dense("rank_5", {2, 3, 1, 5, 48}));
  cases.push_back(dense("tokens_512", {512, 7168}, false));
  cases.push_back(
      strided("rows_with_gaps", {9, 256}, {{272, 1}}, {{264, 1}, 8}, {{512, 1}}, {{256, 1}}));
  cases.push_back(strided("heads_apart", {3, 12, 128}, {{2304, 192, 1}, 8}, {{1536, 128, 1}},
                          {{1536, 128, 1}}, {{1536, 128, 1}}));
  cases.push_back(
      strided("one_row_shared", {9, 256}, {{256, 1}}, {{0, 1}}, {{256, 1}}, {{264, 1}}));
  cases.push_back(
      strided("odd_strides", {7, 1000}, {{1001, 1}}, {{1003, 1}}, {{1005, 1}}, {{1007, 1}}));
  const Layout plain = {{1024, 1}};
  const Layout shifted = {{1024, 1}, 1};
  cases.push_back(strided("a_off_by_one", {7, 1024}, shifted, plain, plain, plain));
  cases.push_back(strided("b_off_by_one", {7, 1024}, plain, shifted, plain, plain));
  cases.push_back(strided("c_off_by_one", {7, 1024}, plain, plain, shifted, plain));
  cases.push_back(strided("out_off_by_one", {7, 1024}, plain, plain, plain, shifted));
  cases.push_back(make_case("combinations", [] { return combinations(false); }));
  // Which NaN comes out is the machine's choice.
  cases.push_back(
      {"non_finite", true, [] { return combinations(true); }, {{"out", {.atol = 1e-300}}}});
  return cases;
}

}  // namespace k3::harness
