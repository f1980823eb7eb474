// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kD = 128;
using Sizes = std::vector<std::int64_t>;

struct Options {
  std::int64_t B = 3;
  std::int64_t H = 2;
  std::int64_t group = 1;  ///< value heads per q/k head
  std::int64_t slots = 7;
  Sizes indices;  ///< empty: slots from the last one down
  bool a_log = true;
  bool dt_bias = true;
  bool safe_gate = true;
  DType state = DType::kF32;
  std::int64_t null_index = -1;
  const char* scale = "";
  double state_deviation = 1.0;
};

using List = CaseList<Options>;

/// Nothing between the inputs and the state is rounded to bf16: an fp32 state holds fp32 sums.
std::map<std::string, Tolerance> tolerances(const Options& o) {
  Tolerance state = {.err_ratio = 1e-5, .row_err_ratio = 5e-5};
  if (o.state == DType::kBF16) state = {.err_ratio = 2e-3, .row_err_ratio = 4e-3};
  return {{"out", {.err_ratio = 2e-3, .row_err_ratio = 4e-3}}, {"state", state}};
}

Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t HV = o.H * o.group;
  Sizes indices = o.indices;
  if (indices.empty())
    for (std::int64_t n = 0; n < o.B; ++n) indices.push_back(o.slots - 1 - n);
  Bundle b;
  b.tensors["mixed_qkv"] = normal(random, DType::kBF16, {o.B, (2 * o.H + HV) * kD});
  b.tensors["g"] = normal(random, DType::kBF16, {o.B, HV * kD});
  b.tensors["beta"] = normal(random, DType::kBF16, {o.B, HV});
  if (o.a_log) b.tensors["A_log"] = uniform(random, DType::kF32, {HV}, 0.0, 1.0);
  if (o.dt_bias) b.tensors["dt_bias"] = normal(random, DType::kF32, {HV * kD});
  b.tensors["state"] = normal(random, o.state, {o.slots, HV, kD, kD}, o.state_deviation);
  b.tensors["state_indices"] = integers(DType::kI32, indices);
  b.tensors["out"] = poisoned(DType::kBF16, {o.B, HV * kD});
  b.scalars = {{"scale", o.scale},
               {"lower_bound", o.safe_gate ? "-5" : ""},
               {"null_index", std::to_string(o.null_index)}};
  return b;
}

void odd_rows(Bundle& b) {
  pad_rows(b, "mixed_qkv", 17, 1);
  pad_rows(b, "beta", 1, 3);
  pad_rows(b, "g", 7, 1);
  pad_rows(b, "out", 9, 1);
}

/// Slots with a gap between them and a base off the grid.
void slot_gap(Bundle& b, std::int64_t gap) {
  const Tensor& state = b.tensors.at("state");
  b.tensors["state"] =
      restrided(state, {state.shape()[1] * kD * kD + gap, kD * kD, kD, 1}, gap % 7);
}

void add_shapes(List& list) {
  for (std::int64_t H : {1, 3, 6, 12})
    for (std::int64_t B : {1, 7})
      list.add("heads_" + std::to_string(H) + "_batch_" + std::to_string(B), {.B = B, .H = H});
  list.add("batch_0", {.B = 0});
  list.add("batch_64", {.B = 64, .H = 3, .slots = 64});
  list.add("heads_24", {.B = 2, .H = 24, .slots = 3});
  list.add("heads_96", {.B = 2, .H = 96, .slots = 3}, [](Bundle&) {}, false);
  list.add("batch_257", {.B = 257, .H = 1, .slots = 300}, [](Bundle&) {}, false);
  for (std::int64_t group : {2, 4})
    for (std::int64_t H : {1, 3})
      list.add("heads_" + std::to_string(H) + "_group_" + std::to_string(group),
               {.H = H, .group = group});
}

void add_options(List& list) {
  list.add("softplus", {.safe_gate = false});
  list.add("softplus_group_2", {.group = 2, .safe_gate = false});
  list.add("no_a_log", {.a_log = false});
  list.add("no_dt_bias", {.dt_bias = false});
  list.add("state_bf16", {.state = DType::kBF16});
  list.add("state_bf16_group_4", {.group = 4, .state = DType::kBF16});
  list.add("scale_given", {.scale = "0.5"});
  list.add("state_tiny", {.state_deviation = 1e-4});
  list.add("state_huge", {.state_deviation = 1e3});
  list.add("dt_bias_2d", {.group = 2}, [](Bundle& b) {
    const Tensor& flat = b.tensors.at("dt_bias");
    Tensor square = Tensor::dense(DType::kF32, {flat.numel() / kD, kD});
    for (std::int64_t i = 0; i < flat.numel(); ++i) square.set(i, flat.get(i));
    b.tensors["dt_bias"] = square;
  });
}

void add_padding(List& list) {
  list.add("padding_some", {.B = 4, .indices = {4, -1, 1, -1}});
  list.add("padding_all", {.B = 3, .indices = {-1, -1, -5}});
  list.add("null_index_0", {.B = 4, .indices = {0, 3, 0, -1}, .null_index = 0});
  list.add("slot_0_is_a_slot", {.B = 2, .indices = {0, 6}});
  list.add("padding_strided", {.B = 6, .group = 2, .slots = 9, .indices = {8, 0, -1, 5, -1, -1}},
           [](Bundle& b) {
             odd_rows(b);
             slot_gap(b, 292);
           });
}

void add_strides(List& list) {
  list.add("odd_rows", {}, odd_rows);
  list.add("odd_rows_group_2", {.B = 4, .H = 3, .group = 2}, odd_rows);
  list.add("slot_gap_292", {}, [](Bundle& b) { slot_gap(b, 292); });
  list.add("slot_gap_odd", {}, [](Bundle& b) { slot_gap(b, 333); });
  list.add("slot_gap_odd_bf16", {.state = DType::kBF16}, [](Bundle& b) { slot_gap(b, 333); });
  list.add("indices_strided", {}, [](Bundle& b) {
    b.tensors["state_indices"] = restrided(b.tensors.at("state_indices"), {9}, 2);
  });
}

void add_adversarial(List& list) {
  const auto all = [&](const char* name, const char* tensor, const Options& o, double value) {
    list.add(name, o, [=](Bundle& b) { set_all(b, tensor, [=](std::int64_t) { return value; }); });
  };
  all("gate_at_lower_bound", "g", {}, 1e4);
  all("gate_at_zero", "g", {}, -1e4);
  all("softplus_large", "g", {.safe_gate = false}, 1e4);
  all("softplus_near_20", "g", {.dt_bias = false, .safe_gate = false}, 20.0);
  all("beta_one", "beta", {}, 100.0);
  all("beta_zero", "beta", {}, -100.0);
  all("zero_state", "state", {}, 0.0);
  all("zero_qkv", "mixed_qkv", {}, 0.0);
  list.add("nan_in_an_unselected_slot", {.B = 2, .indices = {2, 4}},
           [](Bundle& b) { fill_rows_with_nan(b, "state", 3, 4); });
  list.add("nan_in_one_request", {.B = 3},
           [](Bundle& b) { fill_rows_with_nan(b, "mixed_qkv", 1, 2); });
}

}  // namespace

std::vector<Case> kda_packed_decode_cases() {
  List list(make_bundle, tolerances);
  add_shapes(list);
  add_options(list);
  add_padding(list);
  add_strides(list);
  add_adversarial(list);
  return list.take();
}

}  // namespace k3::harness
