// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/inputs.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"
#include "harness/ops/probabilities.h"

namespace k3::harness {
namespace {

/// The sum that is kept and the quotient are rounded to fp32, 2^-24 each, and masses of a row that
/// sums to about 1 are right within 2^-28; a value on the wrong side of the pivot is off by itself.
const std::map<std::string, Tolerance> kTolerances = {{"out", {.atol = 1e-12, .rtol = 2e-6}}};

Bundle bundle_of(Tensor probs, const char* top_p) {
  Bundle b;
  b.tensors["out"] = poisoned(DType::kF32, probs.shape());
  b.tensors["probs"] = std::move(probs);
  b.scalars = {{"top_p", top_p}};
  return b;
}

Case make_case(std::string name, std::function<Bundle()> make, bool quick = true) {
  return {std::move(name), quick, std::move(make), kTolerances};
}

Case random_case(std::int64_t B, std::int64_t V, const char* top_p, bool quick = true) {
  std::string name = "random_" + std::to_string(B) + "x" + std::to_string(V) + "_p" + top_p;
  for (char& c : name)
    if (c == '.' || c == '-') c = '_';
  return make_case(
      std::move(name),
      [=] {
        Random random(static_cast<std::uint64_t>(B * 7919 + V));
        return bundle_of(random_probabilities(random, B, V), top_p);
      },
      quick);
}

Tensor row_of(const std::vector<double>& values) {
  Tensor probs = Tensor::dense(DType::kF32, {1, std::ssize(values)});
  for (std::int64_t i = 0; i < std::ssize(values); ++i)
    probs.set(i, values[static_cast<std::size_t>(i)]);
  return probs;
}

Case row_case(const char* name, const std::vector<double>& values, const char* top_p) {
  return make_case(name, [=] { return bundle_of(row_of(values), top_p); });
}

/// Rows `pitch` apart, NaN between them.
Case gap_case(const char* name, std::int64_t V, std::int64_t pitch, std::int64_t offset) {
  return make_case(name, [=] {
    Random random(5);
    Bundle b = bundle_of(random_probabilities(random, 3, V), "0.8");
    for (const char* tensor : {"probs", "out"})
      b.tensors[tensor] = restrided(b.tensors.at(tensor), {pitch, 1}, offset, kNaNGaps);
    return b;
  });
}

/// One value of each row's own beside many equal ones: all of those stay or go together.
Bundle plateau(std::int64_t V, double largest, const char* top_p) {
  Tensor probs = constant(DType::kF32, {2, V}, (1.0 - largest) / static_cast<double>(V - 1));
  probs.set(V / 3, largest);
  probs.set(V + V / 2, largest);
  return bundle_of(probs, top_p);
}

/// What no softmax gives, beside what it does.
Bundle odd_values() {
  Random random(9);
  constexpr std::int64_t kV = 777;
  Tensor probs = random_probabilities(random, 3, kV);
  const double inf = std::numeric_limits<double>::infinity();
  const double odd[] = {std::nan(""), -0.25, -0.0, -inf, 0.0, 1e-42, -1e-42, 0x1p-149, 1e-30};
  for (std::int64_t i = 0; i < 2 * kV; i += 5) probs.set(i, odd[i / 5 % std::ssize(odd)]);
  probs.set(kV + 3, inf);
  probs.set(kV + 9, 7.0);
  return bundle_of(probs, "0.9");
}

}  // namespace

std::vector<Case> top_p_renorm_cases() {
  std::vector<Case> cases;
  for (const char* top_p : {"0.5", "0.8", "0.95"}) {
    cases.push_back(random_case(3, 1024, top_p));
    cases.push_back(random_case(1, 163840, top_p, std::string(top_p) == "0.8"));
  }
  cases.push_back(random_case(5, 163840, "0.9", false));
  for (const char* top_p : {"1", "0.999999", "1e-6", "1e-38"})
    cases.push_back(random_case(2, 1000, top_p));
  for (std::int64_t V :
       {0, 1, 2, 3, 4, 5, 7, 8, 9, 255, 256, 257, 1023, 1025, 4095, 4096, 4100, 4101})
    cases.push_back(random_case(2, V, "0.7"));
  for (std::int64_t V : {16384, 16388, 16390, 65536, 65540, 65543, 151937, 300000, 300001})
    cases.push_back(random_case(2, V, "0.9", V < 20000));
  cases.push_back(random_case(0, 1024, "0.7"));
  cases.push_back(random_case(300, 64, "0.7"));
  // Sums that hit the bound exactly: the value that reaches it stays.
  cases.push_back(row_case("halves", {0.5, 0.5}, "0.5"));
  cases.push_back(row_case("bound_is_met", {0.125, 0.5, 0.25, 0.125}, "0.75"));
  cases.push_back(
      row_case("bound_is_met_by_the_first_of_equals", {0.25, 0.25, 0.25, 0.25}, "0.75"));
  cases.push_back(row_case("just_past_the_bound", {0.125, 0.5, 0.25, 0.125}, "0.7499999"));
  cases.push_back(row_case("one_hot", {0.0, 0.0, 1.0, 0.0, 0.0}, "0.9"));
  cases.push_back(row_case("one_hot_all_kept", {0.0, 0.0, 1.0, 0.0, 0.0}, "1"));
  cases.push_back(row_case("zeros", {0.0, -0.0, 0.0}, "0.9"));
  cases.push_back(row_case("row_sums_to_less_than_asked", {0.01, 0.02, 0.02, 0.005}, "0.5"));
  cases.push_back(row_case("row_sums_to_more_than_one", {0.9, 0.8, 0.7, 0.6, 0.1}, "0.25"));
  cases.push_back(row_case("neighbours_in_fp32",
                           {0.25, 0.25 + 0x1p-25, 0.25 - 0x1p-26, 0.25 + 0x1p-24}, "0.6"));
  cases.push_back(make_case(
      "uniform", [] { return bundle_of(constant(DType::kF32, {2, 4096}, 1.0 / 4096), "0.3"); }));
  cases.push_back(make_case(
      "uniform_vocabulary",
      [] { return bundle_of(constant(DType::kF32, {1, 163840}, 1.0 / 163840), "0.3"); }, false));
  cases.push_back(make_case("plateau_kept", [] { return plateau(5000, 0.4, "0.9"); }));
  cases.push_back(make_case("plateau_dropped", [] { return plateau(5000, 0.4, "0.3"); }));
  cases.push_back(make_case("odd_values", odd_values));
  cases.push_back(make_case("top_p_of_each_row", [] {
    Random random(6);
    Bundle b = bundle_of(random_probabilities(random, 5, 3000), "");
    b.tensors["top_ps"] = Tensor::strided(DType::kF32, {5}, {3}, 1, std::byte{0xFF});
    const double top_ps[] = {0.5, 1.0, 1e-30, 0.99, 0.1};
    for (std::int64_t i = 0; i < 5; ++i) b.tensors.at("top_ps").set(i, top_ps[i]);
    return b;
  }));
  cases.push_back(gap_case("aligned_gaps", 1000, 1040, 8));
  cases.push_back(gap_case("odd_rows", 1000, 1003, 0));
  cases.push_back(gap_case("base_off_by_one", 1000, 1000, 1));
  cases.push_back(gap_case("ragged_row_with_gaps", 1001, 1004, 0));
  return cases;
}

}  // namespace k3::harness
