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
  std::int64_t slots = 7;
  Sizes indices;  ///< empty: slots from the last one down
  bool bias = true;
  bool a_log = true;
  bool dt_bias = true;
  bool onorm = true;
  bool safe_gate = true;
  DType state = DType::kF32;
  const char* round_conv = "bf16";
  const char* round_o = "f32";
  std::int64_t null_index = -1;
  const char* scale = "";
  double state_deviation = 1.0;
};

/// Where q, k and v are rounded to bf16 after the convolution, fp32 and double arithmetic may round
/// an element to different neighbours, 2^-8 of it apart; with few such elements among 128 that
/// moves the state by well under 1e-3 of its size. Without that rounding only fp32 sums differ.
std::map<std::string, Tolerance> tolerances(const Options& o) {
  const bool rounds = std::string_view(o.round_conv) == "bf16";
  Tolerance state = {.err_ratio = 1e-5, .row_err_ratio = 5e-5};
  if (rounds) state = {.err_ratio = 1e-3, .row_err_ratio = 2e-3};
  if (o.state == DType::kBF16) state = {.err_ratio = 2e-3, .row_err_ratio = 4e-3};
  return {{"out", {.err_ratio = 2e-3, .row_err_ratio = 4e-3}},
          {"state", state},
          {"conv_states", {.exact = true}}};
}

Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t segment = o.H * kD;
  Sizes indices = o.indices;
  if (indices.empty())
    for (std::int64_t n = 0; n < o.B; ++n) indices.push_back(o.slots - 1 - n);
  Bundle b;
  b.tensors["mixed_qkv"] = normal(random, DType::kBF16, {o.B, 3 * segment});
  b.tensors["conv_states"] = normal(random, DType::kBF16, {o.slots, 3, 3 * segment});
  b.tensors["conv_weight"] = normal(random, DType::kF32, {4, 3 * segment}, 0.4);
  if (o.bias) b.tensors["conv_bias"] = normal(random, DType::kF32, {3 * segment}, 0.1);
  b.tensors["g"] = normal(random, DType::kBF16, {o.B, segment});
  b.tensors["beta"] = normal(random, DType::kBF16, {o.B, o.H});
  if (o.a_log) b.tensors["A_log"] = uniform(random, DType::kF32, {o.H}, 0.0, 1.0);
  if (o.dt_bias) b.tensors["dt_bias"] = normal(random, DType::kF32, {segment});
  if (o.onorm) {
    b.tensors["onorm_gate"] = normal(random, DType::kBF16, {o.B, segment});
    b.tensors["onorm_weight"] = normal(random, DType::kF32, {kD}, 0.1, 1.0);
  }
  b.tensors["state"] = normal(random, o.state, {o.slots, o.H, kD, kD}, o.state_deviation);
  b.tensors["state_indices"] = integers(DType::kI32, indices);
  b.tensors["out"] = poisoned(DType::kBF16, {o.B, segment});
  b.scalars = {{"scale", o.scale},     {"lower_bound", o.safe_gate ? "-5" : ""},
               {"eps_o", "1e-5"},      {"round_conv", o.round_conv},
               {"round_o", o.round_o}, {"null_index", std::to_string(o.null_index)}};
  return b;
}

/// Rows padded by odd numbers of elements, so that nothing but the element is aligned.
void odd_rows(Bundle& b) {
  pad_rows(b, "mixed_qkv", 17, 1);
  pad_rows(b, "beta", 1, 3);
  pad_rows(b, "g", 7, 1);
  pad_rows(b, "onorm_gate", 7, 5);
  pad_rows(b, "conv_weight", 3, 1);
  const Sizes out = b.tensors.at("out").shape();
  b.tensors["out"] = Tensor::strided(DType::kBF16, out, {out[1] + 9, 1}, 1);
}

/// Paged pools with a gap between slots, taps that are not dense, and a base off the grid.
void odd_pools(Bundle& b, std::int64_t state_gap) {
  const Tensor& state = b.tensors.at("state");
  const std::int64_t H = state.shape()[1];
  b.tensors["state"] = restrided(state, {H * kD * kD + state_gap, kD * kD, kD, 1}, state_gap % 7);
  const Tensor& conv = b.tensors.at("conv_states");
  const std::int64_t tap = conv.shape()[2] + 5;
  b.tensors["conv_states"] = restrided(conv, {3 * tap + 11, tap, 1}, 3);
}

/// state_indices as a column of a wider table.
void strided_indices(Bundle& b) {
  b.tensors["state_indices"] = restrided(b.tensors.at("state_indices"), {9}, 2);
}

void add_shapes(CaseList<Options>& list) {
  for (std::int64_t H : {1, 3, 6, 12})
    for (std::int64_t B : {1, 2, 7})
      list.add("heads_" + std::to_string(H) + "_batch_" + std::to_string(B), {.B = B, .H = H});
  list.add("batch_0", {.B = 0});
  list.add("batch_64", {.B = 64, .H = 3, .slots = 64});
  for (std::int64_t H : {24, 32, 48, 96})
    list.add("heads_" + std::to_string(H), {.B = 2, .H = H, .slots = 3}, [](Bundle&) {}, H < 48);
  list.add("heads_5", {.H = 5});
  list.add("batch_257", {.B = 257, .H = 1, .slots = 300}, [](Bundle&) {}, false);
}

void add_options(CaseList<Options>& list) {
  list.add("softplus", {.safe_gate = false});
  list.add("no_bias", {.bias = false});
  list.add("no_a_log", {.a_log = false});
  list.add("no_dt_bias", {.dt_bias = false});
  list.add("no_onorm", {.onorm = false});
  list.add("state_bf16", {.state = DType::kBF16});
  list.add("round_conv_f32", {.round_conv = "f32"});
  list.add("round_o_bf16", {.round_o = "bf16"});
  list.add("round_conv_f32_softplus_no_onorm",
           {.onorm = false, .safe_gate = false, .round_conv = "f32"});
  list.add("scale_given", {.onorm = false, .scale = "0.5"});
  list.add("state_tiny", {.round_conv = "f32", .state_deviation = 1e-4});
  list.add("state_huge", {.round_conv = "f32", .state_deviation = 1e3});
  list.add("dt_bias_2d", {}, [](Bundle& b) {
    Tensor flat = b.tensors.at("dt_bias");
    Tensor square = Tensor::dense(DType::kF32, {flat.numel() / kD, kD});
    for (std::int64_t i = 0; i < flat.numel(); ++i) square.set(i, flat.get(i));
    b.tensors["dt_bias"] = square;
  });
}

void add_padding(CaseList<Options>& list) {
  list.add("padding_some", {.B = 4, .indices = {4, -1, 1, -1}});
  list.add("padding_all", {.B = 3, .indices = {-1, -1, -5}});
  list.add("null_index_0", {.B = 4, .indices = {0, 3, 0, -1}, .null_index = 0});
  list.add("slot_0_is_a_slot", {.B = 2, .indices = {0, 6}});
  list.add("null_index_3", {.B = 5, .indices = {3, 4, 2, 6, 0}, .null_index = 3});
  list.add("padding_strided", {.B = 8, .slots = 9, .indices = {8, 0, 3, 5, 7, -1, -1, -1}},
           [](Bundle& b) {
             odd_rows(b);
             odd_pools(b, 292);
           });
}

void add_strides(CaseList<Options>& list) {
  list.add("odd_rows", {}, odd_rows);
  list.add("odd_rows_12_heads", {.B = 4, .H = 12}, odd_rows);
  list.add("slot_gap_292", {}, [](Bundle& b) { odd_pools(b, 292); });
  list.add("slot_gap_odd", {}, [](Bundle& b) { odd_pools(b, 333); });
  list.add("slot_gap_odd_bf16", {.state = DType::kBF16}, [](Bundle& b) { odd_pools(b, 333); });
  list.add("indices_strided", {}, strided_indices);
  list.add("conv_transposed_slots", {}, [](Bundle& b) {
    const Tensor& conv = b.tensors.at("conv_states");
    b.tensors["conv_states"] = restrided(conv, {conv.shape()[2], 7 * conv.shape()[2], 1});
  });
}

void add_adversarial(CaseList<Options>& list) {
  const auto all = [&](const char* name, const char* tensor, const Options& o, double value) {
    list.add(name, o, [=](Bundle& b) { set_all(b, tensor, [=](std::int64_t) { return value; }); });
  };
  all("gate_at_lower_bound", "g", {.round_conv = "f32"}, 1e4);
  all("gate_at_zero", "g", {.round_conv = "f32"}, -1e4);
  all("softplus_large", "g", {.safe_gate = false, .round_conv = "f32"}, 1e4);
  all("softplus_near_20", "g", {.dt_bias = false, .safe_gate = false, .round_conv = "f32"}, 20.0);
  all("softplus_slow", "g", {.safe_gate = false, .round_conv = "f32"}, -30.0);
  all("beta_one", "beta", {.round_conv = "f32"}, 100.0);
  all("beta_zero", "beta", {.round_conv = "f32"}, -100.0);
  all("zero_state", "state", {}, 0.0);
  all("onorm_gate_shut", "onorm_gate", {}, -1e4);
  all("onorm_gate_open", "onorm_gate", {}, 1e4);
  // q = k = v = 0: the norms stand on their epsilon, the state only decays, out is 0.
  list.add("zero_qkv", {.bias = false, .round_conv = "f32"}, [](Bundle& b) {
    set_all(b, "mixed_qkv", [](std::int64_t) { return 0.0; });
    set_all(b, "conv_states", [](std::int64_t) { return 0.0; });
  });
  all("a_log_large", "A_log", {.round_conv = "f32"}, 30.0);
  list.add("nan_in_an_unselected_slot", {.B = 2, .indices = {2, 4}}, [](Bundle& b) {
    for (const char* name : {"state", "conv_states"}) fill_rows_with_nan(b, name, 3, 4);
  });
  list.add("nan_in_one_request", {.B = 3},
           [](Bundle& b) { fill_rows_with_nan(b, "mixed_qkv", 1, 2); });
}

}  // namespace

std::vector<Case> kda_fused_decode_cases() {
  CaseList<Options> list(make_bundle, tolerances);
  add_shapes(list);
  add_options(list);
  add_padding(list);
  add_strides(list);
  add_adversarial(list);
  return list.take();
}

}  // namespace k3::harness
