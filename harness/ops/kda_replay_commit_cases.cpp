// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <numeric>

#include "harness/inputs.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kD = 128;
using Sizes = std::vector<std::int64_t>;

struct Options {
  std::int64_t layers = 0;  ///< 0: no layer axis
  std::int64_t H = 2;
  std::int64_t group = 1;  ///< value heads per k head
  std::int64_t L = 8;
  std::int64_t slots = 7;
  Sizes indices = {6, 2, 4};
  Sizes accept = {3, 8, 1};
  Sizes rings;          ///< empty: no ring_indices
  Sizes track;          ///< empty: no track_indices
  Sizes steps;          ///< with track
  std::int64_t C = 40;  ///< 0: no windows
  Sizes scratch;        ///< empty: no scratch_indices
  DType ring_kv = DType::kBF16;
  bool raw_gate = false;
  bool safe_gate = true;
  bool a_log = true;
  bool dt_bias = true;
  DType state = DType::kF32;
  const char* qk_l2norm = "1";
  std::int64_t null_index = -1;
};

using List = CaseList<Options>;

/// An fp32 state holds fp32 sums of few tokens; a bf16 one is rounded after each.
std::map<std::string, Tolerance> tolerances(const Options& o) {
  Tolerance state = {.err_ratio = 1e-5, .row_err_ratio = 5e-5};
  if (o.state == DType::kBF16) state = {.err_ratio = 2e-3, .row_err_ratio = 4e-3};
  return {{"state", state}, {"conv_states", {.exact = true}}};
}

Sizes layered(const Options& o, Sizes shape) {
  if (o.layers > 0) shape.insert(shape.begin(), o.layers);
  return shape;
}

Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  const auto B = static_cast<std::int64_t>(o.indices.size());
  const std::int64_t HV = o.H * o.group;
  const std::int64_t rows = o.rings.empty() ? o.slots : o.slots + 2;
  Bundle b;
  const auto list = [&](const char* name, const Sizes& values) {
    if (!values.empty()) b.tensors[name] = integers(DType::kI32, values);
  };
  b.tensors["state"] = normal(random, o.state, layered(o, {o.slots, HV, kD, kD}));
  b.tensors["ring_k"] = normal(random, o.ring_kv, layered(o, {rows, o.H, o.L, kD}));
  b.tensors["ring_v"] = normal(random, o.ring_kv, layered(o, {rows, HV, o.L, kD}));
  b.tensors["ring_g"] =
      o.raw_gate ? normal(random, DType::kBF16, layered(o, {rows, HV, o.L, kD}))
                 : uniform(random, DType::kF32, layered(o, {rows, HV, o.L, kD}), -5.0, 0.0);
  b.tensors["ring_beta"] = uniform(random, DType::kF32, layered(o, {rows, HV, o.L}), 0.0, 1.0);
  b.tensors["state_indices"] = integers(DType::kI32, o.indices);
  b.tensors["accept_lens"] = integers(DType::kI32, o.accept);
  list("ring_indices", o.rings);
  list("track_indices", o.track);
  list("track_steps", o.steps);
  if (o.C > 0) {
    const std::int64_t scratch_rows = o.scratch.empty() ? B : o.slots;
    b.tensors["conv_states"] = normal(random, DType::kBF16, layered(o, {o.slots, 3, o.C}));
    b.tensors["conv_scratch"] =
        normal(random, DType::kBF16, layered(o, {scratch_rows, o.L, 3, o.C}));
    list("scratch_indices", o.scratch);
  }
  if (o.raw_gate && o.a_log)
    b.tensors["A_log"] = uniform(random, DType::kF32, layered(o, {HV}), 0.0, 1.0);
  if (o.raw_gate && o.dt_bias)
    b.tensors["dt_bias"] = normal(random, DType::kF32, layered(o, {HV * kD}));
  b.scalars = {{"lower_bound", o.raw_gate && o.safe_gate ? "-5" : ""},
               {"qk_l2norm", o.qk_l2norm},
               {"null_index", std::to_string(o.null_index)}};
  return b;
}

/// The strides of a dense tensor whose axes from the last one up to `axis` stand in this order:
/// layer inside slot where `layer_inside`, and `gap` more elements between outer rows.
void place(Bundle& b, const std::string& name, bool layer_inside, std::int64_t gap,
           std::int64_t offset) {
  if (!b.tensors.contains(name)) return;
  const Tensor& t = b.tensors.at(name);
  const Sizes& shape = t.shape();
  Sizes strides(shape.size(), 1);
  for (std::size_t d = shape.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * shape[d + 1];
  const std::int64_t inner = strides[1] + gap;  // of a slot in a layer, or of a layer in a slot
  strides[0] = layer_inside ? inner : inner * shape[1] + 3;
  strides[1] = layer_inside ? inner * shape[0] + 3 : inner;
  b.tensors[name] = restrided(t, strides, offset);
}

constexpr const char* kPools[] = {"state",     "ring_k",      "ring_v",      "ring_g",
                                  "ring_beta", "conv_states", "conv_scratch"};

void page_major(Bundle& b) {
  for (const char* name : kPools) place(b, name, true, 5, 1);
  for (const char* name : {"A_log", "dt_bias"}) {
    const auto found = b.tensors.find(name);
    if (found == b.tensors.end()) continue;
    found->second = restrided(found->second, {found->second.shape()[1] + 3, 1}, 1);
  }
}

void layer_major_with_gaps(Bundle& b) {
  for (const char* name : kPools) place(b, name, false, 7, 3);
}

/// Slots and rows with gaps of a call without layers; taps and tokens of the windows, too.
void odd_slots(Bundle& b) {
  for (const char* name : {"state", "ring_k", "ring_v", "ring_g", "ring_beta"}) {
    const Tensor& t = b.tensors.at(name);
    Sizes strides = t.strides();
    strides[0] += 333;
    b.tensors[name] = restrided(t, strides, 3);
  }
  const Tensor& conv = b.tensors.at("conv_states");
  const std::int64_t tap = conv.shape()[2] + 5;
  b.tensors["conv_states"] = restrided(conv, {3 * tap + 11, tap, 1}, 3);
  const Tensor& scratch = b.tensors.at("conv_scratch");
  const std::int64_t L = scratch.shape()[1];
  b.tensors["conv_scratch"] = restrided(scratch, {L * (3 * tap + 1) + 9, 3 * tap + 1, tap, 1}, 1);
}

/// Windows that share their taps: T + 2 rows of channels hold all of a request.
void shared_taps(Bundle& b) {
  const Tensor& t = b.tensors.at("conv_scratch");
  const std::int64_t C = t.shape()[3];
  b.tensors["conv_scratch"] = restrided(t, {(t.shape()[1] + 2) * C, C, C, 1});
}

void add_shapes(List& list) {
  for (std::int64_t H : {1, 3, 6, 12})
    list.add("heads_" + std::to_string(H), {.H = H, .C = 3 * H * kD});
  list.add("heads_24", {.H = 24, .slots = 3, .indices = {2}, .accept = {4}, .rings = {0}});
  list.add("heads_96", {.H = 96, .slots = 3, .indices = {2}, .accept = {2}}, [](Bundle&) {}, false);
  for (std::int64_t group : {2, 4})
    for (std::int64_t H : {1, 3})
      list.add("heads_" + std::to_string(H) + "_group_" + std::to_string(group),
               {.H = H, .group = group});
  list.add("batch_0", {.indices = {}, .accept = {}});
  list.add("batch_1", {.indices = {3}, .accept = {5}});
  Sizes indices(40);
  std::iota(indices.begin(), indices.end(), 0);
  Sizes accept;
  for (std::int64_t n = 0; n < 40; ++n) accept.push_back(n * 5 % 9);
  list.add("batch_40", {.H = 1, .slots = 40, .indices = indices, .accept = accept});
  for (std::int64_t layers : {1, 2, 5}) {
    const std::string name = "layers_" + std::to_string(layers);
    list.add(name, {.layers = layers});
    list.add(name + "_gaps", {.layers = layers}, layer_major_with_gaps);
    list.add(name + "_page_major", {.layers = layers}, page_major);
  }
  list.add("layers_0", {.layers = 1}, [](Bundle& b) {
    for (const char* name : kPools) {
      Sizes shape = b.tensors.at(name).shape();
      shape[0] = 0;
      b.tensors[name] = Tensor::dense(b.tensors.at(name).dtype(), shape);
    }
  });
  list.add("layers_3_page_major_raw_group_2",
           {.layers = 3, .group = 2, .track = {1, 0, 3}, .steps = {2, 0, -1}, .raw_gate = true},
           page_major);
}

void add_lengths(List& list) {
  for (std::int64_t A = 0; A <= 8; ++A)
    list.add("accept_" + std::to_string(A), {.indices = {2, 5}, .accept = {A, 8 - A}});
  list.add("accept_none", {.accept = {0, -1, -7}});
  list.add("accept_16", {.L = 16, .accept = {16, 15, 1}});
  list.add("accept_40", {.L = 40, .accept = {40, 17, 33}});
  list.add("ring_of_1", {.L = 1, .accept = {1, 0, 1}});
  list.add("ring_of_0", {.L = 0, .accept = {0, 0, 0}});
  list.add("ring_indices", {.rings = {0, 8, 3}});
  list.add("one_ring_row_for_all", {.rings = {1, 1, 1}});
  list.add("scratch_indices", {.scratch = {5, 0, 5}});
  list.add("no_windows", {.C = 0});
}

void add_tracks(List& list) {
  list.add("track_first", {.track = {0, 1, 3}, .steps = {0, 0, 0}});
  list.add("track_last", {.track = {0, 1, 3}, .steps = {2, 7, 0}});
  list.add("track_middle", {.track = {0, 1, 3}, .steps = {1, 4, -1}});
  list.add("track_past_accept", {.track = {0, 1, 3}, .steps = {3, 7, 7}});
  list.add("track_no_slot", {.track = {-1, 1, -1}, .steps = {1, 4, 0}});
  list.add("track_null_index_0", {.track = {0, 1, 3}, .steps = {1, 4, 0}, .null_index = 0});
  list.add("track_16_of_40",
           {.L = 40, .accept = {40, 17, 33}, .track = {0, 1, 3}, .steps = {15, 16, 32}});
  list.add("track_bf16", {.track = {0, 1, 3}, .steps = {1, 7, 0}, .state = DType::kBF16});
  list.add("track_layers", {.layers = 2, .track = {0, 1, 3}, .steps = {1, 7, 0}});
  list.add("track_no_windows", {.track = {0, 1, 3}, .steps = {1, 7, 0}, .C = 0});
}

void add_options(List& list) {
  list.add("state_bf16", {.state = DType::kBF16});
  list.add("ring_f32", {.ring_kv = DType::kF32});
  list.add("no_l2norm", {.qk_l2norm = "0"}, [](Bundle& b) {
    // Of length about 1, so that a token does not blow the state up.
    Tensor& k = b.tensors.at("ring_k");
    for (std::int64_t i = 0; i < k.numel(); ++i) k.set(i, k.get(i) / 12.0);
  });
  list.add("raw_gate", {.raw_gate = true});
  list.add("raw_gate_softplus", {.raw_gate = true, .safe_gate = false});
  list.add("raw_gate_no_a_log", {.raw_gate = true, .a_log = false});
  list.add("raw_gate_no_dt_bias", {.raw_gate = true, .dt_bias = false});
  list.add("raw_gate_group_2_bf16", {.group = 2, .raw_gate = true, .state = DType::kBF16});
  list.add("raw_gate_layers", {.layers = 2, .raw_gate = true});
}

void add_padding(List& list) {
  list.add("padding_some", {.indices = {6, -1, 4, -1}, .accept = {3, 2, 0, 99}});
  list.add("padding_all", {.indices = {-1, -1, -5}});
  list.add("null_index_0", {.indices = {0, 3, 0}, .accept = {4, 4, 4}, .null_index = 0});
  list.add("slot_0_is_a_slot", {.indices = {0, 6}, .accept = {4, 4}});
  list.add("padding_with_lists", {.indices = {-1, 3, -1},
                                  .accept = {3, 2, 3},
                                  .rings = {-9, 8, 1000},
                                  .track = {77, 1, -9},
                                  .steps = {99, 1, 99},
                                  .scratch = {-4, 2, 1000}});
}

void add_strides(List& list) {
  list.add("odd_slots", {}, odd_slots);
  list.add("odd_slots_bf16", {.group = 2, .raw_gate = true, .state = DType::kBF16}, odd_slots);
  list.add("shared_taps", {}, shared_taps);
  list.add("lists_strided", {.rings = {0, 8, 3}, .track = {0, 1, 3}, .steps = {1, 4, -1}},
           [](Bundle& b) {
             for (const char* name :
                  {"state_indices", "ring_indices", "accept_lens", "track_indices", "track_steps"})
               b.tensors[name] = restrided(b.tensors.at(name), {9}, 2);
           });
}

void add_adversarial(List& list) {
  const auto all = [&](const char* name, const char* tensor, const Options& o, double value) {
    list.add(name, o, [=](Bundle& b) { set_all(b, tensor, [=](std::int64_t) { return value; }); });
  };
  all("no_decay", "ring_g", {}, 0.0);
  all("full_decay", "ring_g", {}, -std::numeric_limits<double>::infinity());
  all("raw_gate_at_lower_bound", "ring_g", {.raw_gate = true}, 1e4);
  all("raw_gate_at_zero", "ring_g", {.raw_gate = true}, -1e4);
  all("zero_k", "ring_k", {}, 0.0);
  all("zero_state", "state", {}, 0.0);
  list.add("nan_in_unselected_slots", {}, [](Bundle& b) {
    for (const char* name : {"state", "ring_k", "ring_v", "ring_g", "ring_beta", "conv_states"})
      for (std::int64_t slot : {0, 1, 3, 5}) fill_rows_with_nan(b, name, slot, slot + 1);
  });
  list.add("nan_past_the_accepted_tokens", {.accept = {3, 3, 3}}, [](Bundle& b) {
    for (const char* name : {"ring_k", "ring_v", "ring_g", "ring_beta"}) {
      Tensor& t = b.tensors.at(name);
      const std::int64_t width = t.shape().size() == 4 ? kD : 1;
      for (std::int64_t i = 0; i < t.numel(); ++i)
        if (i / width % 8 >= 3) t.set(i, std::numeric_limits<double>::quiet_NaN());
    }
  });
  list.add("nan_where_nothing_is_accepted", {.accept = {0, 2, -1}}, [](Bundle& b) {
    for (const char* name : {"ring_k", "ring_v", "ring_g", "ring_beta"})
      for (std::int64_t row : {6, 4}) fill_rows_with_nan(b, name, row, row + 1);
  });
}

}  // namespace

std::vector<Case> kda_replay_commit_cases() {
  List list(make_bundle, tolerances);
  add_shapes(list);
  add_lengths(list);
  add_tracks(list);
  add_options(list);
  add_padding(list);
  add_strides(list);
  add_adversarial(list);
  return list.take();
}

}  // namespace k3::harness
