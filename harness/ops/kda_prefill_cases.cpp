// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness/inputs.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

constexpr std::int64_t kD = 128;
constexpr std::int64_t kChunk = 64;
using Sizes = std::vector<std::int64_t>;

/// States: fp32 arithmetic over chunks against double; 7e-6 is the most that 512 equal keys leave,
/// and four times as many, whose roundings add up like a random walk, twice that.
/// Outputs and bf16 states: both sides are rounded to bf16, so one unit in the last place (2^-7 of
/// the value) where the roundings part; a row has few such elements.
constexpr Tolerance kState = {.err_ratio = 1e-5, .row_err_ratio = 5e-5};
constexpr Tolerance kManyRepeatedKeysState = {.err_ratio = 2e-5, .row_err_ratio = 1e-4};
constexpr Tolerance kBF16State = {.err_ratio = 2e-3, .row_err_ratio = 4e-3};
constexpr Tolerance kOut = {.err_ratio = 2e-3, .row_err_ratio = 4e-3};

/// On tensor cores: operands are rounded to bf16, 2^-8 of the value at most and about 2^-9.4 in the
/// root mean square, once each; four or five of them meet in an output. Repeated keys multiply what
/// is rounded by the size of a chunk.
constexpr Tolerance kTensorCores = {.err_ratio = 5e-3, .row_err_ratio = 3e-2};
constexpr Tolerance kTensorCoresBF16State = {.err_ratio = 6e-3, .row_err_ratio = 3e-2};
constexpr Tolerance kRepeatedKeysOut = {.err_ratio = 0.06};
constexpr Tolerance kRepeatedKeysState = {.err_ratio = 0.10};

struct Options {
  Sizes lengths = {65};  ///< of the packed sequences
  bool packed = true;    ///< else B = lengths.size(), all of one length
  DType cu = DType::kI32;
  std::int64_t H = 2;
  std::int64_t HV = 2;
  bool safe_gate = true;  ///< with gate_in_kernel: lower_bound -5, else softplus
  bool gate_in_kernel = true;
  DType g = DType::kBF16;
  bool flat_g = false;  ///< g as [B, T, HV*128]
  bool a_log = true;
  bool dt_bias = true;
  bool qk_l2norm = true;
  bool beta_sigmoid = true;
  bool allow_neg_eigval = false;
  DType beta = DType::kBF16;
  bool initial = true;
  DType state = DType::kF32;
  bool layout_kv = false;
  std::int64_t pool_slots = 0;  ///< 0: no pool
  std::int64_t slot_gap = 0;    ///< elements between slots
  Sizes indices;
  bool chunk_states = false;
  DType chunk_dtype = DType::kF32;
  Sizes track;
  std::string scale;
  bool repeated_keys = false;  ///< for the tolerances
};

std::int64_t total(const Sizes& lengths) {
  std::int64_t sum = 0;
  for (std::int64_t length : lengths) sum += length;
  return sum;
}

Tensor state_tensor(Random& random, const Options& o, std::int64_t rows) {
  Tensor dense = normal(random, o.state, {rows, o.HV, kD, kD});
  if (o.slot_gap == 0) return dense;
  return restrided(dense, {o.HV * kD * kD + o.slot_gap, kD * kD, kD, 1});
}

void add_states(Bundle& b, Random& random, const Options& o) {
  const auto N = static_cast<std::int64_t>(o.lengths.size());
  const std::int64_t rows = o.pool_slots > 0 ? o.pool_slots : N;
  if (o.initial) b.tensors["initial_state"] = state_tensor(random, o, rows);
  b.tensors["final_state"] = state_tensor(random, o, rows);
  if (o.pool_slots > 0) b.tensors["state_indices"] = integers(DType::kI32, o.indices);
  if (o.chunk_states) {
    std::int64_t chunks = 1;  // one row more than needed: it must stay as it is
    for (std::int64_t length : o.lengths) chunks += (length + kChunk - 1) / kChunk;
    b.tensors["chunk_states"] = normal(random, o.chunk_dtype, {chunks, o.HV, kD, kD});
  }
  if (!o.track.empty()) {
    b.tensors["track_chunk_idx"] = integers(DType::kI32, o.track);
    b.tensors["tracked_states"] = normal(random, DType::kF32, {N, o.HV, kD, kD});
  }
}

void add_scalars(Bundle& b, const Options& o) {
  const auto flag = [](bool value) { return value ? "1" : "0"; };
  b.scalars = {{"scale", o.scale},
               {"lower_bound", o.safe_gate && o.gate_in_kernel ? "-5" : ""},
               {"qk_l2norm", flag(o.qk_l2norm)},
               {"gate_in_kernel", flag(o.gate_in_kernel)},
               {"beta_sigmoid", flag(o.beta_sigmoid)},
               {"allow_neg_eigval", flag(o.allow_neg_eigval)},
               {"state_layout", o.layout_kv ? "N,HV,K,V" : "N,HV,V,K"}};
}

Bundle make_bundle(const Options& o, std::uint64_t seed = 1) {
  Random random(seed);
  const auto N = static_cast<std::int64_t>(o.lengths.size());
  const std::int64_t B = o.packed ? 1 : N;
  const std::int64_t T = o.packed ? total(o.lengths) : (N > 0 ? o.lengths[0] : 0);
  // Without the norm in the kernel keys come with about unit length, as a caller's norm leaves
  // them.
  const double qk = o.qk_l2norm ? 1.0 : 1.0 / std::sqrt(static_cast<double>(kD));
  Bundle b;
  b.tensors["q"] = normal(random, DType::kBF16, {B, T, o.H, kD}, qk);
  b.tensors["k"] = normal(random, DType::kBF16, {B, T, o.H, kD}, qk);
  b.tensors["v"] = normal(random, DType::kBF16, {B, T, o.HV, kD});
  const Sizes g_shape = o.flat_g ? Sizes{B, T, o.HV * kD} : Sizes{B, T, o.HV, kD};
  if (o.gate_in_kernel)
    b.tensors["g"] = normal(random, o.g, g_shape);
  else
    b.tensors["g"] = filled(o.g, g_shape, [&] { return -std::log1p(std::exp(random.normal())); });
  if (o.beta_sigmoid)
    b.tensors["beta"] = normal(random, o.beta, {B, T, o.HV});
  else
    b.tensors["beta"] = uniform(random, o.beta, {B, T, o.HV}, 0.0, 1.0);
  if (o.a_log && o.gate_in_kernel) b.tensors["A_log"] = uniform(random, DType::kF32, {o.HV}, 0, 1);
  if (o.dt_bias && o.gate_in_kernel) b.tensors["dt_bias"] = normal(random, DType::kF32, {o.HV, kD});
  if (o.packed) {
    Sizes cu = {0};
    for (std::int64_t length : o.lengths) cu.push_back(cu.back() + length);
    b.tensors["cu_seqlens"] = integers(o.cu, cu);
  }
  b.tensors["out"] = poisoned(DType::kBF16, {B, T, o.HV, kD});
  add_states(b, random, o);
  add_scalars(b, o);
  return b;
}

class CaseList {
 public:
  /// `edit` changes the inputs of the case.
  void add(
      std::string name, const Options& o, std::function<void(Bundle&)> edit = [](Bundle&) {},
      bool quick = true) {
    const auto seed = static_cast<std::uint64_t>(cases_.size()) + 17;
    Case c{std::move(name),
           quick,
           [=] {
             Bundle b = make_bundle(o, seed);
             edit(b);
             return b;
           },
           {{"out", kOut}, {"final_state", in_fp32(o)}},
           {{"out", o.repeated_keys ? kRepeatedKeysOut : kTensorCores},
            {"final_state", on_tensor_cores(o, o.state)}}};
    if (o.chunk_states) {
      c.tolerances["chunk_states"] = o.chunk_dtype == DType::kF32 ? kState : kBF16State;
      c.cuda_tolerances["chunk_states"] = on_tensor_cores(o, o.chunk_dtype);
    }
    if (!o.track.empty()) {
      c.tolerances["tracked_states"] = kState;
      c.cuda_tolerances["tracked_states"] = on_tensor_cores(o, DType::kF32);
    }
    cases_.push_back(std::move(c));
  }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  static Tolerance in_fp32(const Options& o) {
    if (o.repeated_keys && total(o.lengths) > 512) return kManyRepeatedKeysState;
    return o.state == DType::kF32 ? kState : kBF16State;
  }
  static Tolerance on_tensor_cores(const Options& o, DType state) {
    if (o.repeated_keys) return kRepeatedKeysState;
    return state == DType::kF32 ? kTensorCores : kTensorCoresBF16State;
  }

  std::vector<Case> cases_;
};

void add_lengths(CaseList& list) {
  for (std::int64_t T : {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    list.add("length_" + std::to_string(T), {.lengths = {T}, .packed = false});
  }
  const Sizes all = {0, 1, 15, 16, 17, 0, 31, 32, 33, 63, 64, 65, 0, 0, 127, 128, 129, 1, 0};
  list.add("ragged_i32", {.lengths = all});
  list.add("ragged_i64", {.lengths = all, .cu = DType::kI64});
  list.add("one_token_sequences", {.lengths = Sizes(256, 1), .H = 1, .HV = 1});
  list.add("one_token_among_long", {.lengths = {1, 1, 1, 127, 1}, .H = 12, .HV = 12});
  list.add("all_empty", {.lengths = {0, 0, 0}});
  list.add("all_empty_no_initial_state", {.lengths = {0, 0}, .initial = false});
  list.add("batch_of_3", {.lengths = {70, 70, 70}, .packed = false});
  list.add("long", {.lengths = {2048}, .H = 1, .HV = 1}, [](Bundle&) {}, false);
  list.add(
      "mixed_6", {.lengths = {1300, 547, 2048, 963, 271, 3063}, .H = 1, .HV = 1}, [](Bundle&) {},
      false);
  list.add("k3_heads", {.lengths = {130, 40}, .H = 96, .HV = 96}, [](Bundle&) {}, false);
}

void add_options(CaseList& list) {
  list.add("softplus", {.lengths = {100, 29}, .safe_gate = false});
  list.add("gate_given_bf16", {.lengths = {100, 29}, .gate_in_kernel = false});
  list.add("gate_given_f32", {.lengths = {100, 29}, .gate_in_kernel = false, .g = DType::kF32});
  list.add("gate_flat", {.lengths = {100}, .flat_g = true});
  list.add("gate_raw_f32", {.lengths = {100}, .g = DType::kF32});
  list.add("no_a_log", {.lengths = {100}, .a_log = false});
  list.add("no_dt_bias", {.lengths = {100}, .dt_bias = false});
  list.add("no_l2norm", {.lengths = {100}, .qk_l2norm = false});
  list.add("beta_given_f32", {.lengths = {100}, .beta_sigmoid = false, .beta = DType::kF32});
  list.add("beta_given_bf16", {.lengths = {100}, .beta_sigmoid = false});
  list.add("beta_logits_f32", {.lengths = {100}, .beta = DType::kF32});
  list.add("negative_eigenvalues", {.lengths = {200}, .allow_neg_eigval = true});
  list.add("scale_given", {.lengths = {100}, .scale = "0.5"});
  list.add("gva_2", {.lengths = {100, 29}, .H = 2, .HV = 4});
  list.add("gva_4", {.lengths = {100, 29}, .H = 1, .HV = 4, .safe_gate = false});
  for (std::int64_t H : {1, 3, 5, 7, 12})
    list.add("heads_" + std::to_string(H), {.lengths = {80}, .H = H, .HV = H});
}

void add_state_cases(CaseList& list) {
  list.add("no_initial_state", {.lengths = {100, 29}, .initial = false});
  list.add("state_bf16", {.lengths = {100, 29}, .state = DType::kBF16});
  list.add("state_kv", {.lengths = {100, 29}, .layout_kv = true});
  list.add("state_kv_bf16", {.lengths = {100, 29}, .state = DType::kBF16, .layout_kv = true});
  const Options pool = {
      .lengths = {65, 0, 20, 33, 1}, .pool_slots = 9, .indices = {4, 7, -1, 0, 8}};
  list.add("pool", pool);
  Options gaps = pool;
  gaps.slot_gap = 331;
  list.add("pool_odd_slot_stride", gaps);
  gaps.state = DType::kBF16;
  gaps.layout_kv = true;
  list.add("pool_odd_slot_stride_bf16_kv", gaps);
  Options all_padding = pool;
  all_padding.indices = {-1, -1, -1, -1, -7};
  list.add("pool_all_padding", all_padding);
  const Sizes lengths = {0, 1, 64, 65, 192, 130};
  list.add("chunk_states_f32", {.lengths = lengths, .chunk_states = true});
  list.add("chunk_states_bf16",
           {.lengths = lengths, .chunk_states = true, .chunk_dtype = DType::kBF16});
  list.add("chunk_states_kv", {.lengths = lengths, .layout_kv = true, .chunk_states = true});
  list.add("tracked", {.lengths = lengths, .track = {-1, 0, 1, 1, 3, 2}});
  list.add("tracked_and_chunk_states",
           {.lengths = lengths, .chunk_states = true, .track = {0, -1, 0, 0, 2, -1}});
}

/// q, k, v and g as slices of one projection row; beta with a 24-byte pitch; out a slice too.
void make_strided(Bundle& b) {
  const Sizes shape = b.tensors.at("q").shape();
  const std::int64_t T = shape[1];
  const std::int64_t H = shape[2];
  const std::int64_t pitch = 4 * H * kD + 64;
  std::int64_t part = 0;
  for (const char* name : {"q", "k", "v", "g"})
    b.tensors[name] = restrided(b.tensors.at(name), {T * pitch, pitch, kD, 1}, part++ * H * kD);
  b.tensors["beta"] = restrided(b.tensors.at("beta"), {T * (H + 5), H + 5, 1}, 3);
  b.tensors["out"] = Tensor::strided(DType::kBF16, shape, {T * pitch, pitch, kD + 8, 1}, 16);
}

/// Every other row of a bigger batch.
void every_other_batch_row(Bundle& b) {
  for (const char* name : {"q", "k", "v", "g", "out", "beta"}) {
    const Tensor& dense = b.tensors.at(name);
    Sizes strides = dense.strides();
    strides[0] *= 2;
    b.tensors[name] = restrided(dense, strides);
  }
}

template <class Value>
void set_all(Bundle& b, const char* name, Value value) {
  Tensor& tensor = b.tensors.at(name);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, value(i));
}

/// One random unit key for all tokens of a head, with q = k, plus `noise`.
void equal_keys(Bundle& b, double noise) {
  Random random(99);
  Tensor& k = b.tensors.at("k");
  const std::int64_t width = k.shape()[2] * kD;
  const Tensor key = normal(random, DType::kF32, {width});
  for (std::int64_t i = 0; i < k.numel(); ++i)
    k.set(i, key.get(i % width) + noise * random.normal());
  b.tensors["q"] = k.clone();
}

void add_gates(CaseList& list, const Sizes& lengths, const std::string& suffix) {
  const double inf = std::numeric_limits<double>::infinity();
  const Options raw = {.lengths = lengths};
  const Options given = {.lengths = lengths, .gate_in_kernel = false};
  const auto gate = [&](const char* name, const Options& o, auto value) {
    list.add(name + suffix, o, [=](Bundle& b) { set_all(b, "g", value); });
  };
  gate("gate_at_lower_bound", raw, [](std::int64_t) { return 1e4; });
  gate("gate_at_zero", raw, [](std::int64_t) { return -1e4; });
  gate("gate_half_half", raw, [](std::int64_t i) { return i % 2 == 0 ? 1e4 : -1e4; });
  gate("gate_one_channel_slow", raw, [](std::int64_t i) { return i % kD == 77 ? -1e4 : 3.0; });
  gate("given_minus_5", given, [](std::int64_t) { return -5.0; });
  gate("given_minus_20", given, [](std::int64_t) { return -20.0; });
  gate("given_minus_1000", given, [](std::int64_t) { return -1000.0; });
  gate("given_zero", given, [](std::int64_t) { return 0.0; });
  gate("given_0_and_minus_60", given, [](std::int64_t i) { return i % 3 == 0 ? -60.0 : 0.0; });
  gate("given_sparse_resets", given,
       [](std::int64_t i) { return (i / kD) % 7 == 3 ? -1000.0 : -0.001; });
  gate("given_minus_infinity", given,
       [=](std::int64_t i) { return i % 5 == 0 ? -inf : (i % 11 == 0 ? -1000.0 : -0.01); });
  gate("given_tiny_decay", given, [](std::int64_t i) { return i % kD == 3 ? -25.84 : -0.01; });
}

void add_equal_keys(CaseList& list) {
  for (double logit : {2.0, 6.0, 8.0, 12.0})
    list.add("equal_keys_beta_logit_" + std::to_string(static_cast<int>(logit)),
             {.lengths = {512},
              .H = 1,
              .HV = 1,
              .a_log = false,
              .dt_bias = false,
              .repeated_keys = true},
             [=](Bundle& b) {
               equal_keys(b, 0.0);
               set_all(b, "g", [](std::int64_t) { return -10.0; });
               set_all(b, "beta", [=](std::int64_t) { return logit; });
             });
}

void add_values(CaseList& list, const Sizes& lengths, const std::string& suffix) {
  const Options raw = {.lengths = lengths};
  Options repeated = raw;
  repeated.repeated_keys = true;
  list.add("near_equal_keys" + suffix, repeated, [](Bundle& b) {
    equal_keys(b, 0.1);
    set_all(b, "g", [](std::int64_t) { return -6.2; });
    set_all(b, "beta", [](std::int64_t) { return 3.0; });
  });
  list.add("positive_keys" + suffix, repeated, [](Bundle& b) {
    for (const char* name : {"q", "k", "v"}) {
      Tensor& t = b.tensors.at(name);
      for (std::int64_t i = 0; i < t.numel(); ++i) t.set(i, std::fabs(t.get(i)));
    }
  });
  for (const char* name : {"k", "q", "v"})
    list.add("zero_" + (name + suffix), raw,
             [=](Bundle& b) { set_all(b, name, [](std::int64_t) { return 0.0; }); });
  list.add("beta_zero" + suffix, raw,
           [](Bundle& b) { set_all(b, "beta", [](std::int64_t) { return -100.0; }); });
  list.add("beta_one" + suffix, raw,
           [](Bundle& b) { set_all(b, "beta", [](std::int64_t) { return 100.0; }); });
  list.add("large_v" + suffix, raw, [](Bundle& b) {
    Tensor& v = b.tensors.at("v");
    for (std::int64_t i = 0; i < v.numel(); ++i) v.set(i, 1e4 * v.get(i));
  });
}

/// Sequences of one chunk and shorter ones, by themselves and among longer ones.
void add_short_sequences(CaseList& list) {
  const Sizes alone = {1, 2, 15, 16, 17, 0, 63, 64};
  const Sizes among_long = {65, 1, 2, 128, 15, 16, 17, 0, 63, 64, 65};
  for (const Sizes& lengths : {alone, among_long}) {
    const auto n = static_cast<std::int64_t>(lengths.size());
    const auto add = [&, prefix = std::string(n == 8 ? "short" : "short_among_long")](
                         const char* name, Options o) {
      o.lengths = lengths;
      list.add(prefix + name, o);
    };
    add("", {});
    add("_softplus_gva", {.H = 1, .HV = 3, .safe_gate = false});
    add("_no_initial_state", {.initial = false});
    add("_kv", {.layout_kv = true});
    add("_bf16", {.state = DType::kBF16});
    add("_bf16_kv", {.state = DType::kBF16, .layout_kv = true});
    Options pool = {.pool_slots = 13, .indices = Sizes(static_cast<std::size_t>(n))};
    std::iota(pool.indices.rbegin(), pool.indices.rend(), std::int64_t{1});
    pool.indices[1] = pool.indices[5] = pool.indices[7] = -1;
    add("_pool", pool);
    pool.slot_gap = 331;
    add("_pool_odd_slot_stride", pool);
    pool.state = DType::kBF16;
    pool.chunk_states = true;
    pool.chunk_dtype = DType::kBF16;
    add("_pool_odd_slot_stride_bf16", pool);
    Options all = {.chunk_states = true, .track = Sizes(static_cast<std::size_t>(n), 0)};
    add("_all_states", all);
    all.track = Sizes(static_cast<std::size_t>(n), -1);
    for (std::size_t i = 0; i < lengths.size(); ++i)
      if (lengths[i] >= kChunk) all.track[i] = 1;
    all.layout_kv = true;
    add("_all_states_kv", all);
  }
  const Sizes chunks = {64, 37};
  add_gates(list, chunks, "_one_chunk");
  add_values(list, chunks, "_one_chunk");
  list.add("strided_slices_short", {.lengths = {64, 30, 1}, .H = 3, .HV = 3}, make_strided);
  list.add("strided_batch_short", {.lengths = {33, 33, 33}, .packed = false},
           every_other_batch_row);
  Sizes mixed(150);
  for (std::size_t i = 0; i < mixed.size(); ++i)
    mixed[i] = i % 3 == 0 ? 65 + static_cast<std::int64_t>(i) % 60 : static_cast<std::int64_t>(i);
  list.add("many_short_among_long", {.lengths = mixed, .H = 3, .HV = 6}, [](Bundle&) {}, false);
}

/// The middle sequence is NaN in every input: only its own rows may be.
void poison_middle_sequence(Bundle& b) {
  for (const char* name : {"q", "k", "v", "g"}) {
    Tensor& t = b.tensors.at(name);
    const std::int64_t row = t.numel() / t.shape()[1];
    for (std::int64_t i = 70 * row; i < 95 * row; ++i) t.set(i, std::nan(""));
  }
}

/// All at once, and in parts: few and many CTAs of a GPU take different kernels.
void add_every_length(CaseList& list) {
  constexpr std::int64_t kMost = 130;
  constexpr std::int64_t kPart = 27;
  const auto from = [](std::int64_t begin, std::int64_t end) {
    Sizes lengths(static_cast<std::size_t>(end - begin));
    std::iota(lengths.begin(), lengths.end(), begin);
    return lengths;
  };
  const auto add = [&](const std::string& name, const Sizes& lengths) {
    list.add(name, {.lengths = lengths, .H = 1, .HV = 1}, [](Bundle&) {}, false);
  };
  add("every_length_to_130", from(0, kMost + 1));
  for (std::int64_t begin = 0; begin <= kMost; begin += kPart) {
    const std::int64_t end = std::min(begin + kPart, kMost + 1);
    add("every_length_from_" + std::to_string(begin), from(begin, end));
  }
  add("tokens_65536", {65536});
}

/// A value in [low, high) for each index, in no order.
double scattered(std::int64_t i, double low, double high) {
  return low + (high - low) * static_cast<double>(i * 7919 % 1009) / 1009.0;
}

/// Decays so weak that a state keeps thousands of tokens.
void add_weak_decays(CaseList& list) {
  const Options raw = {
      .lengths = {4096}, .H = 1, .HV = 1, .g = DType::kF32, .a_log = false, .dt_bias = false};
  Options given = raw;
  given.gate_in_kernel = false;
  const auto add = [&](const char* name, const Options& o,
                       const std::function<void(Bundle&)>& edit) {
    list.add(name, o, edit, false);
  };
  add("slow_channels_given", given, [](Bundle& b) {
    set_all(b, "g", [](std::int64_t i) { return scattered(i, -1.5e-3, -0.5e-3); });
  });
  add("slow_channels_raw", raw, [](Bundle& b) {  // -5 sigmoid(x) from -1.6e-3 to -6e-4
    set_all(b, "g", [](std::int64_t i) { return scattered(i, -9.0, -8.0); });
  });
  Options repeated = raw;
  repeated.lengths = {2048};
  repeated.repeated_keys = true;
  add("positive_keys_no_decay", repeated, [](Bundle& b) {
    for (const char* name : {"q", "k", "v"}) {
      Tensor& t = b.tensors.at(name);
      for (std::int64_t i = 0; i < t.numel(); ++i) t.set(i, std::fabs(t.get(i)));
    }
    set_all(b, "g", [](std::int64_t) { return -1e4; });
  });
  const auto add_keys = [&](const char* name, double noise, double logit, auto gate) {
    add(name, repeated, [=](Bundle& b) {
      equal_keys(b, noise);
      set_all(b, "g", gate);
      set_all(b, "beta", [=](std::int64_t) { return logit; });
    });
  };
  add_keys("near_equal_keys_2048", 0.1, 2.944, [](std::int64_t) { return -6.2; });
  add_keys("equal_keys_2048", 0.0, 4.6, [](std::int64_t) { return -8.0; });
  add_keys("near_equal_keys_half_slow", 0.1, 2.944,
           [](std::int64_t i) { return i % 2 == 0 ? 1e4 : -1e4; });
}

/// Blocks of 16 rows on both sides of where the factors of CUDA's builder leave their range, 52
/// binades before a block's middle and 58 after it, beside others that are far from it.
void add_ranges(CaseList& list) {
  const Options given = {.lengths = {200, 130}, .gate_in_kernel = false, .g = DType::kF32};
  const auto token = [](std::int64_t i) { return i / (2 * kD); };
  for (const char* tenths : {"50", "51", "53", "60"})
    list.add(std::string("given_minus_tenths_") + tenths, given, [=](Bundle& b) {
      set_all(b, "g", [=](std::int64_t) { return -0.1 * std::stod(tenths); });
    });
  list.add("given_first_half_of_blocks_strong", given, [=](Bundle& b) {
    set_all(b, "g", [=](std::int64_t i) { return token(i) % 16 < 8 ? -5.3 : -0.1; });
  });
  list.add("given_one_channel_of_a_block_strong", given, [=](Bundle& b) {
    set_all(b, "g",
            [=](std::int64_t i) { return token(i) / 16 == 5 && i % kD == 77 ? -8.0 : -0.1; });
  });
  const Options softplus = {.lengths = {200, 130}, .safe_gate = false, .g = DType::kF32};
  list.add("softplus_strong_and_mild_chunks", softplus, [=](Bundle& b) {
    set_all(b, "g", [=](std::int64_t i) { return token(i) / 64 % 2 == 0 ? 40.0 : -4.0; });
  });
  list.add("softplus_strong_and_mild_heads", softplus, [=](Bundle& b) {
    set_all(b, "g", [=](std::int64_t i) { return i / kD % 2 == 0 ? 40.0 : -4.0; });
  });
}

}  // namespace

std::vector<Case> kda_prefill_cases() {
  CaseList list;
  add_lengths(list);
  add_options(list);
  add_state_cases(list);
  list.add("strided_slices", {.lengths = {65, 30, 1}, .H = 3, .HV = 3}, make_strided);
  list.add("strided_slices_12_heads", {.lengths = {40}, .H = 12, .HV = 12}, make_strided);
  list.add("strided_batch", {.lengths = {5, 5}, .packed = false}, every_other_batch_row);
  add_gates(list, {130, 70}, "");
  add_equal_keys(list);
  add_values(list, {130, 70}, "");
  list.add("nan_neighbour", {.lengths = {70, 25, 70}}, poison_middle_sequence);
  add_every_length(list);
  add_weak_decays(list);
  add_ranges(list);
  add_short_sequences(list);
  return list.take();
}

}  // namespace k3::harness
