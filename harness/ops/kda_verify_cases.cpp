// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/inputs.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kD = 128;
using Sizes = std::vector<std::int64_t>;

enum class Outputs { kRings, kRingsRawGate, kSnapshots, kNone };
enum class Scratch { kDense, kShared, kNone };

struct Options {
  std::int64_t N = 3;
  std::int64_t T = 3;  ///< tokens of a request where lengths are not given
  std::int64_t H = 2;
  Sizes lengths;            ///< tokens of each request
  std::int64_t before = 0;  ///< tokens that no request owns, before and after those of the requests
  std::int64_t after = 0;
  std::int64_t max_query_len = 0;
  std::int64_t slots = 0;  ///< 0: N + 3
  Sizes indices;           ///< empty: slots from the last one down
  Outputs outputs = Outputs::kRings;
  Scratch scratch = Scratch::kDense;
  std::int64_t spare_tokens = 0;  ///< of rings and scratch, past the longest request
  Sizes ring_indices;             ///< empty: absent
  Sizes scratch_indices;          ///< empty: absent
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
/// an element to different neighbours, one unit in the last place of bf16 apart; with few such
/// elements among 128 that moves the state by well under 1e-3 of its size. Without that rounding
/// only fp32 sums differ. The state decays by more than what a token adds to its error, so a chain
/// of 16 tokens needs no more room than one.
std::map<std::string, Tolerance> tolerances(const Options& o) {
  const bool rounds = std::string_view(o.round_conv) == "bf16";
  Tolerance state = {.err_ratio = 1e-5, .row_err_ratio = 5e-5};
  if (rounds) state = {.err_ratio = 1e-3, .row_err_ratio = 2e-3};
  if (o.state == DType::kBF16) state = {.err_ratio = 2e-3, .row_err_ratio = 4e-3};
  const Tolerance rounded = {.atol = 1e-6, .rtol = 0x1p-7};
  Tolerance gate = {.err_ratio = 2e-6, .row_err_ratio = 5e-6};
  if (o.outputs == Outputs::kRingsRawGate) gate = {.exact = true};
  return {{"out", {.err_ratio = 2e-3, .row_err_ratio = 4e-3}},
          {"snapshots", state},
          {"ring_k", rounded},
          {"ring_v", rounded},
          {"ring_g", gate},
          {"ring_beta", {.atol = 1e-7, .rtol = 1e-6}},
          {"conv_scratch", {.exact = true}}};
}

/// [rows, tokens, 3, channels], poisoned. Shared: equal strides for tokens and taps.
Tensor make_conv_scratch(Scratch scratch, std::int64_t rows, std::int64_t tokens,
                         std::int64_t channels) {
  if (scratch == Scratch::kDense) return poisoned(DType::kBF16, {rows, tokens, 3, channels});
  Tensor shared = Tensor::strided(DType::kBF16, {rows, tokens, 3, channels},
                                  {(tokens + 2) * channels, channels, channels, 1});
  shared.fill_bytes(std::byte{0xFF});
  return shared;
}

void add_side_outputs(Bundle& b, const Options& o, std::int64_t slots, std::int64_t longest) {
  const auto rows_of = [](const Sizes& indices, std::int64_t fallback) {
    return indices.empty() ? fallback : *std::max_element(indices.begin(), indices.end()) + 2;
  };
  const std::int64_t L = longest + o.spare_tokens;
  const std::int64_t rows = rows_of(o.scratch_indices, o.N);
  if (o.scratch != Scratch::kNone)
    b.tensors["conv_scratch"] = make_conv_scratch(o.scratch, rows, L, 3 * o.H * kD);
  if (o.outputs == Outputs::kSnapshots)
    b.tensors["snapshots"] = poisoned(o.state, {rows, L, o.H, kD, kD});
  if (o.outputs == Outputs::kRings || o.outputs == Outputs::kRingsRawGate) {
    const Sizes shape = {rows_of(o.ring_indices, slots), o.H, L, kD};
    b.tensors["ring_k"] = poisoned(DType::kBF16, shape);
    b.tensors["ring_v"] = poisoned(DType::kBF16, shape);
    b.tensors["ring_g"] =
        poisoned(o.outputs == Outputs::kRings ? DType::kF32 : DType::kBF16, shape);
    b.tensors["ring_beta"] = poisoned(DType::kF32, {shape[0], o.H, L});
  }
  if (!o.ring_indices.empty()) b.tensors["ring_indices"] = integers(DType::kI32, o.ring_indices);
  if (!o.scratch_indices.empty())
    b.tensors["scratch_indices"] = integers(DType::kI32, o.scratch_indices);
}

/// Rows of tokens that no request owns become NaN, which must not reach any other.
void spoil_rows(Bundle& b, std::int64_t begin, std::int64_t end) {
  for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate"})
    if (end > begin && b.tensors.contains(name)) fill_rows_with_nan(b, name, begin, end);
}

Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t segment = o.H * kD;
  const std::int64_t slots = o.slots > 0 ? o.slots : o.N + 3;
  const Sizes lengths = o.lengths.empty() ? Sizes(static_cast<std::size_t>(o.N), o.T) : o.lengths;
  Sizes starts = {o.before};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + length);
  const std::int64_t tokens = starts.back() + o.after;
  Sizes indices = o.indices;
  if (indices.empty())
    for (std::int64_t n = 0; n < o.N; ++n) indices.push_back(slots - 1 - n);

  Bundle b;
  b.tensors["mixed_qkv"] = normal(random, DType::kBF16, {tokens, 3 * segment});
  b.tensors["conv_states"] = normal(random, DType::kBF16, {slots, 3, 3 * segment});
  b.tensors["conv_weight"] = normal(random, DType::kF32, {4, 3 * segment}, 0.4);
  if (o.bias) b.tensors["conv_bias"] = normal(random, DType::kF32, {3 * segment}, 0.1);
  b.tensors["g"] = normal(random, DType::kBF16, {tokens, segment});
  b.tensors["beta"] = normal(random, DType::kBF16, {tokens, o.H});
  if (o.a_log) b.tensors["A_log"] = uniform(random, DType::kF32, {o.H}, 0.0, 1.0);
  if (o.dt_bias) b.tensors["dt_bias"] = normal(random, DType::kF32, {segment});
  if (o.onorm) {
    b.tensors["onorm_gate"] = normal(random, DType::kBF16, {tokens, segment});
    b.tensors["onorm_weight"] = normal(random, DType::kF32, {kD}, 0.1, 1.0);
  }
  b.tensors["state"] = normal(random, o.state, {slots, o.H, kD, kD}, o.state_deviation);
  b.tensors["state_indices"] = integers(DType::kI32, indices);
  b.tensors["query_start_loc"] = integers(DType::kI32, starts);
  const std::int64_t longest =
      lengths.empty() ? o.T : *std::max_element(lengths.begin(), lengths.end());
  add_side_outputs(b, o, slots, std::max(longest, o.max_query_len));
  b.tensors["out"] = poisoned(DType::kBF16, {tokens, segment});
  b.scalars = {{"scale", o.scale},
               {"lower_bound", o.safe_gate ? "-5" : ""},
               {"eps_o", "1e-5"},
               {"round_conv", o.round_conv},
               {"round_o", o.round_o},
               {"null_index", std::to_string(o.null_index)},
               {"max_query_len", std::to_string(o.max_query_len)}};
  spoil_rows(b, 0, o.before);
  spoil_rows(b, tokens - o.after, tokens);
  return b;
}

/// The same values (of outputs: poison) under other strides.
void restride(Bundle& b, const char* name, const Sizes& strides, std::int64_t offset) {
  if (!b.tensors.contains(name)) return;
  const Tensor& t = b.tensors.at(name);
  Tensor result = Tensor::strided(t.dtype(), t.shape(), strides, offset);
  result.fill_bytes(std::byte{0xFF});
  for (std::int64_t i = 0; i < t.numel(); ++i)
    if (!std::isnan(t.get(i))) result.set(i, t.get(i));
  b.tensors[name] = result;
}

/// Rows padded by odd numbers of elements, so that nothing but the element is aligned.
void odd_rows(Bundle& b) {
  const auto pad = [&](const char* name, std::int64_t extra, std::int64_t offset) {
    restride(b, name, {b.tensors.at(name).shape()[1] + extra, 1}, offset);
  };
  pad("mixed_qkv", 17, 1);
  pad("beta", 1, 3);
  pad("g", 7, 1);
  pad("onorm_gate", 7, 5);
  pad("conv_weight", 3, 1);
  pad("out", 9, 1);
}

/// Paged pools with a gap between slots, taps that are not dense, and a base off the grid.
void odd_pools(Bundle& b, std::int64_t state_gap) {
  const std::int64_t H = b.tensors.at("state").shape()[1];
  const std::int64_t tap = b.tensors.at("conv_states").shape()[2] + 5;
  restride(b, "state", {H * kD * kD + state_gap, kD * kD, kD, 1}, state_gap % 7);
  restride(b, "conv_states", {3 * tap + 11, tap, 1}, 3);
}

/// The same of what a call writes: gaps between rows, and of the scratch between tokens and taps.
void odd_side_outputs(Bundle& b) {
  const std::int64_t H = b.tensors.at("beta").shape()[1];
  if (b.tensors.contains("ring_k")) {
    const std::int64_t L = b.tensors.at("ring_k").shape()[2];
    const std::int64_t row = H * L * kD;
    restride(b, "ring_k", {row + 3, L * kD, kD, 1}, 1);
    restride(b, "ring_v", {row + 5, L * kD, kD, 1}, 3);
    restride(b, "ring_g", {row + 7, L * kD, kD, 1}, 1);
    restride(
        b, "ring_beta",
        {1, (3 * L + 1) * b.tensors.at("ring_k").shape()[0], 3 * b.tensors.at("ring_k").shape()[0]},
        2);
  }
  if (b.tensors.contains("conv_scratch")) {
    const Sizes shape = b.tensors.at("conv_scratch").shape();
    const Sizes old = b.tensors.at("conv_scratch").strides();
    const std::int64_t tap = shape[3] + 3;
    if (old[1] == old[2])
      restride(b, "conv_scratch", {(shape[1] + 2) * tap + 1, tap, tap, 1}, 1);
    else
      restride(b, "conv_scratch", {shape[1] * (3 * tap + 5) + 1, 3 * tap + 5, tap, 1}, 1);
  }
  if (b.tensors.contains("snapshots")) {
    const std::int64_t token = H * kD * kD + 9;
    const std::int64_t tokens = b.tensors.at("snapshots").shape()[1];
    restride(b, "snapshots", {tokens * token + 13, token, kD * kD, kD, 1}, 5);
  }
}

/// Index lists as columns of wider tables.
void strided_indices(Bundle& b) {
  restride(b, "state_indices", {9}, 2);
  restride(b, "query_start_loc", {5}, 1);
  restride(b, "ring_indices", {3}, 1);
  restride(b, "scratch_indices", {2}, 1);
}

void add_shapes(CaseList<Options>& list) {
  const auto shape = [&](std::int64_t N, std::int64_t T, std::int64_t H, Outputs outputs,
                         bool quick = true) {
    const char* const mode = outputs == Outputs::kSnapshots ? "_snapshots" : "";
    list.add(
        "n_" + std::to_string(N) + "_t_" + std::to_string(T) + "_h_" + std::to_string(H) + mode,
        {.N = N, .T = T, .H = H, .outputs = outputs}, [](Bundle&) {}, quick);
  };
  for (std::int64_t T : {1, 2, 3, 7, 8, 16}) shape(1, T, T % 3 + 1, Outputs::kRings);
  for (std::int64_t H : {1, 2, 3, 6, 12, 24}) shape(3, H == 24 ? 2 : 3, H, Outputs::kRings, H < 24);
  for (std::int64_t T : {1, 2, 8, 16}) shape(2, T, 1, Outputs::kSnapshots);
  shape(3, 7, 3, Outputs::kSnapshots);
  shape(0, 3, 2, Outputs::kRings);
  shape(0, 3, 2, Outputs::kSnapshots);
  shape(17, 1, 1, Outputs::kRings);
  shape(17, 3, 2, Outputs::kRings);
  shape(17, 8, 3, Outputs::kRings, false);
  shape(5, 8, 12, Outputs::kRings, false);
  shape(3, 16, 6, Outputs::kSnapshots, false);
}

void add_ragged(CaseList<Options>& list) {
  list.add("ragged", {.N = 5, .lengths = {4, 0, 1, 3, 4}, .max_query_len = 4});
  list.add(
      "ragged_snapshots",
      {.N = 5, .lengths = {4, 0, 1, 3, 4}, .max_query_len = 4, .outputs = Outputs::kSnapshots});
  list.add("ragged_shared_scratch",
           {.N = 4, .lengths = {1, 5, 0, 2}, .max_query_len = 5, .scratch = Scratch::kShared});
  list.add("ragged_to_16", {.N = 3, .H = 1, .lengths = {16, 1, 0}, .max_query_len = 16});
  list.add("all_requests_empty", {.N = 3, .lengths = {0, 0, 0}, .max_query_len = 4});
  list.add("no_tokens", {.N = 3, .T = 0, .spare_tokens = 2});
  list.add("tokens_of_no_request", {.N = 2, .before = 2, .after = 3, .max_query_len = 3});
  list.add("tokens_of_no_request_ragged",
           {.N = 3, .lengths = {2, 0, 3}, .before = 1, .after = 4, .max_query_len = 3});
  list.add("tokens_but_no_request", {.N = 0, .after = 4, .max_query_len = 3});
}

void add_side_outputs_cases(CaseList<Options>& list) {
  list.add("raw_gate_ring", {.outputs = Outputs::kRingsRawGate});
  list.add("output_only", {.outputs = Outputs::kNone, .scratch = Scratch::kNone});
  list.add("output_and_windows", {.outputs = Outputs::kNone});
  list.add("rings_without_windows", {.scratch = Scratch::kNone});
  list.add("shared_windows", {.T = 8, .scratch = Scratch::kShared});
  list.add("shared_windows_one_token", {.T = 1, .scratch = Scratch::kShared});
  list.add("longer_rings", {.spare_tokens = 13});
  list.add("longer_snapshots", {.outputs = Outputs::kSnapshots, .spare_tokens = 2});
  list.add("ring_indices", {.ring_indices = {0, 5, 2}});
  list.add("scratch_indices", {.scratch_indices = {4, 0, 3}});
  list.add("scratch_indices_snapshots",
           {.outputs = Outputs::kSnapshots, .scratch_indices = {4, 0, 3}});
  list.add("every_index",
           {.N = 4,
            .lengths = {2, 3, 0, 1},
            .max_query_len = 3,
            .indices = {3, 0, 5, 1},
            .scratch = Scratch::kShared,
            .spare_tokens = 1,
            .ring_indices = {1, 6, 0, 3},
            .scratch_indices = {2, 0, 5, 1}},
           strided_indices);
  list.add("one_slot_for_two_requests", {.N = 3, .indices = {2, 4, 2}, .ring_indices = {0, 1, 2}});
}

void add_options(CaseList<Options>& list) {
  list.add("softplus", {.safe_gate = false});
  list.add("no_bias", {.bias = false});
  list.add("no_a_log", {.a_log = false});
  list.add("no_dt_bias", {.dt_bias = false});
  list.add("no_onorm", {.onorm = false});
  for (const Outputs outputs : {Outputs::kRings, Outputs::kSnapshots}) {
    const std::string mode = outputs == Outputs::kSnapshots ? "_snapshots" : "";
    list.add("state_bf16" + mode, {.T = 8, .outputs = outputs, .state = DType::kBF16});
    list.add("round_conv_f32" + mode, {.T = 8, .outputs = outputs, .round_conv = "f32"});
  }
  list.add("round_o_bf16", {.round_o = "bf16"});
  list.add(
      "round_conv_f32_softplus_no_onorm",
      {.outputs = Outputs::kSnapshots, .onorm = false, .safe_gate = false, .round_conv = "f32"});
  list.add("scale_given", {.onorm = false, .scale = "0.5"});
  list.add("state_tiny",
           {.outputs = Outputs::kSnapshots, .round_conv = "f32", .state_deviation = 1e-4});
  list.add("state_huge",
           {.outputs = Outputs::kSnapshots, .round_conv = "f32", .state_deviation = 1e3});
  list.add("dt_bias_2d", {}, [](Bundle& b) {
    Tensor flat = b.tensors.at("dt_bias");
    Tensor square = Tensor::dense(DType::kF32, {flat.numel() / kD, kD});
    for (std::int64_t i = 0; i < flat.numel(); ++i) square.set(i, flat.get(i));
    b.tensors["dt_bias"] = square;
  });
}

void add_padding(CaseList<Options>& list) {
  list.add("padding_some", {.N = 4, .indices = {4, -1, 1, -1}});
  list.add("padding_some_snapshots",
           {.N = 4, .indices = {-1, 4, -7, 1}, .outputs = Outputs::kSnapshots});
  list.add("padding_all", {.N = 3, .indices = {-1, -1, -5}});
  list.add("null_index_0", {.N = 4, .indices = {0, 3, 0, -1}, .null_index = 0});
  list.add("slot_0_is_a_slot", {.N = 2, .indices = {0, 4}});
  list.add("null_index_3", {.N = 5, .indices = {3, 4, 2, 6, 0}, .null_index = 3});
  // Rows of padding requests are not read: they may hold anything.
  list.add("padding_with_wrong_rows", {.N = 4, .indices = {4, -1, 1, -1}}, [](Bundle& b) {
    b.tensors["ring_indices"] = integers(DType::kI32, {0, 99, 1, -7});
    b.tensors["scratch_indices"] = integers(DType::kI32, {3, -1, 1, 99});
  });
  list.add("padding_ragged_strided",
           {.N = 6,
            .lengths = {2, 1, 0, 3, 2, 3},
            .after = 2,
            .max_query_len = 3,
            .indices = {8, 0, 3, -1, -1, 5}},
           [](Bundle& b) {
             odd_rows(b);
             odd_pools(b, 292);
             odd_side_outputs(b);
           });
}

void add_strides(CaseList<Options>& list) {
  list.add("odd_rows", {}, odd_rows);
  list.add("odd_rows_12_heads", {.N = 2, .H = 12}, odd_rows);
  list.add("slot_gap_292", {}, [](Bundle& b) { odd_pools(b, 292); });
  list.add("slot_gap_odd", {}, [](Bundle& b) { odd_pools(b, 333); });
  list.add("slot_gap_odd_bf16", {.state = DType::kBF16}, [](Bundle& b) { odd_pools(b, 333); });
  list.add("odd_side_outputs", {.spare_tokens = 1}, odd_side_outputs);
  list.add("odd_side_outputs_raw_gate", {.outputs = Outputs::kRingsRawGate}, odd_side_outputs);
  list.add("odd_side_outputs_shared", {.scratch = Scratch::kShared}, odd_side_outputs);
  list.add("odd_side_outputs_snapshots", {.outputs = Outputs::kSnapshots, .spare_tokens = 1},
           odd_side_outputs);
  list.add("odd_side_outputs_snapshots_bf16",
           {.outputs = Outputs::kSnapshots, .state = DType::kBF16}, odd_side_outputs);
  list.add("everything_odd", {.N = 4, .H = 3}, [](Bundle& b) {
    odd_rows(b);
    odd_pools(b, 77);
    odd_side_outputs(b);
    strided_indices(b);
  });
  list.add("conv_transposed_slots", {}, [](Bundle& b) {
    const Sizes shape = b.tensors.at("conv_states").shape();
    restride(b, "conv_states", {shape[2], shape[0] * shape[2], 1}, 0);
  });
  // Taps outside tokens: the scratch of a layout [rows, 3, Ts, channels].
  list.add("scratch_transposed", {}, [](Bundle& b) {
    const Sizes s = b.tensors.at("conv_scratch").shape();
    restride(b, "conv_scratch", {3 * s[1] * s[3], s[3], s[1] * s[3], 1}, 0);
  });
}

void add_adversarial(CaseList<Options>& list) {
  const auto all = [&](const char* name, const char* tensor, const Options& o, double value) {
    list.add(name, o, [=](Bundle& b) { set_all(b, tensor, [=](std::int64_t) { return value; }); });
  };
  const Options exact = {.round_conv = "f32"};
  const Options snapshots = {.outputs = Outputs::kSnapshots, .round_conv = "f32"};
  const Options softplus = {.safe_gate = false, .round_conv = "f32"};
  all("gate_at_lower_bound", "g", snapshots, 1e4);
  all("gate_at_zero", "g", snapshots, -1e4);
  all("gate_at_lower_bound_rings", "g", exact, 1e4);
  all("softplus_large", "g", softplus, 1e4);
  all("softplus_near_20", "g", {.dt_bias = false, .safe_gate = false, .round_conv = "f32"}, 20.0);
  all("softplus_slow", "g", softplus, -30.0);
  all("beta_one", "beta", snapshots, 100.0);
  all("beta_zero", "beta", snapshots, -100.0);
  all("beta_zero_rings", "beta", exact, -100.0);
  all("zero_state", "state", {}, 0.0);
  all("onorm_gate_shut", "onorm_gate", {}, -1e4);
  all("onorm_gate_open", "onorm_gate", {}, 1e4);
  all("a_log_large", "A_log", exact, 30.0);
  // q = k = v = 0: the norms stand on their epsilon, the state only decays, out is 0.
  list.add("zero_qkv", {.outputs = Outputs::kSnapshots, .bias = false, .round_conv = "f32"},
           [](Bundle& b) {
             set_all(b, "mixed_qkv", [](std::int64_t) { return 0.0; });
             set_all(b, "conv_states", [](std::int64_t) { return 0.0; });
           });
  list.add("nan_in_an_unselected_slot", {.N = 2, .slots = 5, .indices = {2, 4}}, [](Bundle& b) {
    for (const char* name : {"state", "conv_states"}) {
      fill_rows_with_nan(b, name, 3, 4);
    }
  });
  // NaN from the second token of one request on: neither its first token nor a neighbour sees it.
  for (const Outputs outputs : {Outputs::kRings, Outputs::kSnapshots})
    list.add(outputs == Outputs::kRings ? "nan_in_one_token" : "nan_in_one_token_snapshots",
             {.N = 3, .outputs = outputs},
             [](Bundle& b) { fill_rows_with_nan(b, "mixed_qkv", 4, 5); });
}

}  // namespace

std::vector<Case> kda_verify_cases() {
  CaseList<Options> list(make_bundle, tolerances);
  add_shapes(list);
  add_ragged(list);
  add_side_outputs_cases(list);
  add_options(list);
  add_padding(list);
  add_strides(list);
  add_adversarial(list);
  return list.take();
}

}  // namespace k3::harness
