// SPDX-License-Identifier: Apache-2.0
#include <functional>
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

Bundle bundle_of(Tensor x, Tensor gate, Tensor out) {
  Bundle bundle;
  bundle.tensors["x"] = std::move(x);
  bundle.tensors["gate"] = std::move(gate);
  bundle.tensors["out"] = std::move(out);
  return bundle;
}

Case dense(const char* name, const Sizes& shape, bool quick = true) {
  const auto make = [=] {
    Random random(3);
    Tensor x = normal(random, DType::kBF16, shape, 2.0);
    return bundle_of(x, normal(random, DType::kBF16, shape, 4.0), poisoned(DType::kBF16, shape));
  };
  return make_case(name, make, quick);
}

Case row_of(std::int64_t length) {
  return dense(("row_of_" + std::to_string(length)).c_str(), {length});
}

struct Layout {
  Sizes strides;
  std::int64_t offset = 0;
};

/// The same values under strides of each tensor's own. Gaps hold NaN, so that a read of one shows.
Case strided(const char* name, const Sizes& shape, const Layout& x, const Layout& gate,
             const Layout& out) {
  return make_case(name, [=] {
    Random random(11);
    const auto at = [&](const Layout& layout) {
      return restrided(normal(random, DType::kBF16, shape, 3.0), layout.strides, layout.offset,
                       kNaNGaps);
    };
    Tensor x_values = at(x);
    Tensor gate_values = at(gate);
    return bundle_of(x_values, gate_values,
                     Tensor::strided(DType::kBF16, shape, out.strides, out.offset));
  });
}

Tensor every_bf16(std::int64_t rows) {
  constexpr std::int64_t kValues = 65536;
  Tensor all = Tensor::dense(DType::kBF16, {rows, kValues});
  auto* bits = reinterpret_cast<std::uint16_t*>(all.storage());
  for (std::int64_t i = 0; i < rows * kValues; ++i) bits[i] = static_cast<std::uint16_t>(i);
  return all;
}

/// One row a value, `columns` wide.
Tensor rows_of(const std::vector<double>& values, std::int64_t columns) {
  Tensor tensor = Tensor::dense(DType::kBF16, {static_cast<std::int64_t>(values.size()), columns});
  for (std::int64_t i = 0; i < tensor.numel(); ++i)
    tensor.set(i, values[static_cast<std::size_t>(i / columns)]);
  return tensor;
}

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// All 65,536 gates, x = 1 first: there the output is the sigmoid itself. Of the others, some meet
/// ties of the product, some make it subnormal, infinite or NaN.
Bundle every_gate() {
  const std::vector<double> xs = {1.0,      -1.0,     1.0078125, -3.0,        96.5,  0.0,
                                  -0.0,     0x1p-126, -0x1p-133, 0x1.fep-120, 1e-10, 0x1.fep127,
                                  -3.38e38, kInf,     -kInf,     kNaN};
  return bundle_of(rows_of(xs, 65536), every_bf16(std::ssize(xs)),
                   poisoned(DType::kBF16, {std::ssize(xs), 65536}));
}

/// All 65,536 values of x, NaNs of each payload among them.
Bundle every_x() {
  const std::vector<double> gates = {0.0,    -0.0,    0.0078125, -0.00390625, 1.0,   -2.5,  7.0,
                                     64.0,   200.0,   -30.0,     -80.0,       -88.0, -92.0, -93.0,
                                     -200.0, 3.38e38, -3.38e38,  0x1p-133,    kInf,  -kInf, kNaN};
  return bundle_of(every_bf16(std::ssize(gates)), rows_of(gates, 65536),
                   poisoned(DType::kBF16, {std::ssize(gates), 65536}));
}

/// A batch that is not full: the rows past the live ones hold NaN.
Bundle live_rows_before_nan() {
  Random random(17);
  constexpr std::int64_t kCapacity = 16;
  constexpr std::int64_t kLive = 6;
  constexpr std::int64_t kWidth = 1536;
  const auto make = [&](std::int64_t rows) {
    Tensor tensor = normal(random, DType::kBF16, {rows, kWidth});
    for (std::int64_t i = kLive * kWidth; i < tensor.numel(); ++i) tensor.set(i, kNaN);
    return tensor;
  };
  Tensor x = make(kCapacity);
  return bundle_of(x, make(kCapacity), poisoned(DType::kBF16, {kCapacity, kWidth}));
}

}  // namespace

std::vector<Case> mla_output_gate_cases() {
  std::vector<Case> cases;
  cases.push_back(make_case("every_gate", every_gate));
  cases.push_back(make_case("every_x", every_x));
  for (std::int64_t length : {0, 1, 7, 8, 9, 63, 64, 65, 255, 12288})
    cases.push_back(row_of(length));
  cases.push_back(dense("tokens_0", {0, 12288}));
  cases.push_back(dense("width_0", {5, 0}));
  cases.push_back(dense("tokens_17", {17, 12288}));
  cases.push_back(dense("one_rank", {5, 12, 128}));
  cases.push_back(dense("rank_5", {2, 3, 1, 5, 48}));
  cases.push_back(dense("tokens_512", {512, 12288}, false));
  cases.push_back(strided("gate_in_a_wider_projection", {9, 12, 128}, {{1536, 128, 1}},
                          {{4096, 128, 1}, 64}, {{1536, 128, 1}}));
  cases.push_back(strided("heads_apart", {3, 12, 128}, {{2304, 192, 1}, 8}, {{1536, 128, 1}},
                          {{1536, 128, 1}}));
  cases.push_back(strided("one_row_shared", {9, 256}, {{256, 1}}, {{0, 1}}, {{264, 1}}));
  cases.push_back(strided("odd_strides", {7, 1000}, {{1001, 1}}, {{1003, 1}}, {{1005, 1}}));
  cases.push_back(strided("x_off_by_one", {7, 1024}, {{1024, 1}, 1}, {{1024, 1}}, {{1024, 1}}));
  cases.push_back(strided("gate_off_by_one", {7, 1024}, {{1024, 1}}, {{1024, 1}, 1}, {{1024, 1}}));
  cases.push_back(strided("out_off_by_one", {7, 1024}, {{1024, 1}}, {{1024, 1}}, {{1032, 1}, 1}));
  cases.push_back(make_case("live_rows_before_nan", live_rows_before_nan));
  return cases;
}

}  // namespace k3::harness
