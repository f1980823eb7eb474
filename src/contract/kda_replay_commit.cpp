// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_replay_commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace k3 {
namespace {

constexpr std::int64_t kD = kKdaHeadDim;

/// The op's tensors with or without their layer axis in front; axes are counted after it.
class Layers {
 public:
  Layers(const Contract& contract, const KdaReplayCommitArgs& a)
      : contract_(contract),
        axes_(a.state.rank == 5 ? 1 : 0),
        count_(axes_ ? a.state.shape[0] : 1) {}

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t size(const ConstTensorView& t, int axis) const {
    return t.shape[axis + axes_];
  }
  [[nodiscard]] std::int64_t stride(const ConstTensorView& t, int axis) const {
    return t.strides[axis + axes_];
  }
  [[nodiscard]] std::int64_t layer_stride(const ConstTensorView& t) const {
    return axes_ ? t.strides[0] : 0;
  }
  void shape(const char* argument, const ConstTensorView& t,
             std::initializer_list<Axis> axes) const {
    Axis expected[kMaxRank] = {{"layers", count_}};
    std::copy(axes.begin(), axes.end(), expected + axes_);
    contract_.shape(argument, t, std::span(expected, axes.size() + axes_));
  }
  void dense_from(const char* argument, const ConstTensorView& t, int axis) const {
    contract_.dense_from(argument, t, axis + axes_);
  }

 private:
  const Contract& contract_;
  int axes_;
  std::int64_t count_;
};

/// The strides that an absent tensor leaves 0.
struct Strides {
  std::int64_t layer = 0;
  std::int64_t row = 0;

  Strides(const Layers& layers, const ConstTensorView& t)
      : layer(layers.layer_stride(t)), row(layers.stride(t, 0)) {}
};

void check_shapes(const Contract& contract, const Layers& layers, const KdaReplayCommitArgs& a,
                  const KdaReplayCommitProblem& p) {
  const std::int64_t rows = p.num_ring_rows;
  layers.shape("state", a.state, {{"slots", p.num_slots}, {"HV", p.HV}, {"128", kD}, {"128", kD}});
  layers.shape("ring_k", a.ring_k, {{"ring_rows", rows}, {"H", p.H}, {"L", p.L}, {"128", kD}});
  layers.shape("ring_v", a.ring_v, {{"ring_rows", rows}, {"HV", p.HV}, {"L", p.L}, {"128", kD}});
  layers.shape("ring_g", a.ring_g, {{"ring_rows", rows}, {"HV", p.HV}, {"L", p.L}, {"128", kD}});
  layers.shape("ring_beta", a.ring_beta, {{"ring_rows", rows}, {"HV", p.HV}, {"L", p.L}});
  layers.shape("A_log", a.A_log, {{"HV", p.HV}});
  layers.shape("dt_bias", a.dt_bias, {{"HV*128", p.HV * kD}});
  layers.shape("conv_states", a.conv_states,
               {{"slots", p.num_slots}, {"3", kKdaConvWidth - 1}, {"C", p.C}});
  layers.shape("conv_scratch", a.conv_scratch,
               {{"rows", p.num_scratch_rows}, {"Ts", p.Ts}, {"3", kKdaConvWidth - 1}, {"C", p.C}});
  for (const auto& [name, list] : {std::pair{"ring_indices", &a.ring_indices},
                                   {"accept_lens", &a.accept_lens},
                                   {"track_indices", &a.track_indices},
                                   {"track_steps", &a.track_steps},
                                   {"scratch_indices", &a.scratch_indices}})
    contract.shape(name, *list, {{"B", p.B}});
  contract.require(
      !a.conv_scratch.defined() || a.scratch_indices.defined() || p.num_scratch_rows >= p.B,
      "conv_scratch", "must have a row for every request without scratch_indices", a.conv_scratch);
}

void check_layouts(const Contract& contract, const Layers& layers, const KdaReplayCommitArgs& a) {
  layers.dense_from("state", a.state, 1);
  layers.dense_from("ring_k", a.ring_k, 1);
  layers.dense_from("ring_v", a.ring_v, 1);
  layers.dense_from("ring_g", a.ring_g, 1);
  layers.dense_from("ring_beta", a.ring_beta, 1);
  layers.dense_from("A_log", a.A_log, 0);
  layers.dense_from("dt_bias", a.dt_bias, 0);
  contract.unit_last_stride("conv_states", a.conv_states);
  contract.unit_last_stride("conv_scratch", a.conv_scratch);
}

/// Which arguments go together.
void check_presence(const Contract& contract, const KdaReplayCommitArgs& a) {
  contract.require(a.ring_v.dtype == a.ring_k.dtype, "ring_v", "must have the dtype of ring_k",
                   a.ring_v);
  contract.require(a.track_steps.defined() == a.track_indices.defined(), "track_steps",
                   "must be given exactly when track_indices is", a.track_steps);
  contract.require(a.conv_scratch.defined() == a.conv_states.defined(), "conv_scratch",
                   "must be given exactly when conv_states is", a.conv_scratch);
  contract.require(!a.scratch_indices.defined() || a.conv_scratch.defined(), "scratch_indices",
                   "is used only with conv_scratch", a.scratch_indices);
  const bool raw = a.ring_g.dtype == DType::kBF16;
  constexpr const char* kOnlyRaw = "is used only with a bf16 ring_g";
  contract.require(raw || !a.A_log.defined(), "A_log", kOnlyRaw, a.A_log);
  contract.require(raw || !a.dt_bias.defined(), "dt_bias", kOnlyRaw, a.dt_bias);
  contract.require(raw || !a.lower_bound, "lower_bound", kOnlyRaw,
                   [&] { return fmt::format("{}", *a.lower_bound); });
  contract.require(!raw || a.A_log.defined() || a.lower_bound, "A_log",
                   "must be given with a bf16 ring_g where lower_bound is absent", a.A_log);
}

void check_row(const Contract& contract, const char* argument, const IndexList& list,
               std::int64_t n, std::int64_t num_rows, const char* what) {
  if (list[n] >= 0 && list[n] < num_rows) return;
  contract.fail(argument, fmt::format("must be a {} below {} for a live request", what, num_rows),
                fmt::format("{}[{}] = {}", argument, n, list[n]));
}

void check_at_most(const Contract& contract, const char* argument, const IndexList& list,
                   std::int64_t n, int most, const char* what) {
  if (list[n] <= most) return;
  contract.fail(argument, fmt::format("must be at most {} ({})", most, what),
                fmt::format("{}[{}] = {}", argument, n, list[n]));
}

/// Notes that request n writes `slot`; no other may.
void claim_slot(const Contract& contract, const char* argument, std::int64_t n, std::int32_t slot,
                std::unordered_map<std::int32_t, std::int64_t>& writers) {
  const auto [other, is_new] = writers.try_emplace(slot, n);
  if (!is_new)
    contract.fail(
        argument, "must give every live request slots of its own",
        fmt::format("{}[{}] = {}, which request {} writes, too", argument, n, slot, other->second));
}

void set_tensors(const Layers& layers, const KdaReplayCommitArgs& a, KdaReplayCommitProblem& p) {
  p.state = a.state.data;
  p.state_dtype = a.state.dtype;
  p.state_layer_stride = Strides(layers, a.state).layer;
  p.state_slot_stride = Strides(layers, a.state).row;
  p.ring_k = a.ring_k.data;
  p.ring_k_layer_stride = Strides(layers, a.ring_k).layer;
  p.ring_k_row_stride = Strides(layers, a.ring_k).row;
  p.ring_v = a.ring_v.data;
  p.ring_kv_dtype = a.ring_k.dtype;
  p.ring_v_layer_stride = Strides(layers, a.ring_v).layer;
  p.ring_v_row_stride = Strides(layers, a.ring_v).row;
  p.ring_g = a.ring_g.data;
  p.ring_g_dtype = a.ring_g.dtype;
  p.ring_g_layer_stride = Strides(layers, a.ring_g).layer;
  p.ring_g_row_stride = Strides(layers, a.ring_g).row;
  p.ring_beta = static_cast<const float*>(a.ring_beta.data);
  p.ring_beta_layer_stride = Strides(layers, a.ring_beta).layer;
  p.ring_beta_row_stride = Strides(layers, a.ring_beta).row;
  p.A_log = static_cast<const float*>(a.A_log.data);
  p.A_log_layer_stride = layers.layer_stride(a.A_log);
  p.dt_bias = static_cast<const float*>(a.dt_bias.data);
  p.dt_bias_layer_stride = layers.layer_stride(a.dt_bias);

  p.conv_states = static_cast<bf16*>(a.conv_states.data);
  p.conv_layer_stride = Strides(layers, a.conv_states).layer;
  p.conv_slot_stride = Strides(layers, a.conv_states).row;
  p.conv_tap_stride = layers.stride(a.conv_states, 1);
  p.conv_scratch = static_cast<const bf16*>(a.conv_scratch.data);
  p.scratch_layer_stride = Strides(layers, a.conv_scratch).layer;
  p.scratch_row_stride = Strides(layers, a.conv_scratch).row;
  p.scratch_token_stride = layers.stride(a.conv_scratch, 1);
  p.scratch_tap_stride = layers.stride(a.conv_scratch, 2);
}

}  // namespace

std::span<const ArgRule<KdaReplayCommitArgs>> kda_replay_commit_args() {
  using Args = KdaReplayCommitArgs;
  constexpr DTypeSet kBF16 = {DType::kBF16};
  constexpr DTypeSet kF32 = {DType::kF32};
  constexpr DTypeSet kI32 = {DType::kI32};
  constexpr DTypeSet kEither = {DType::kF32, DType::kBF16};
  constexpr auto kRead = Access::kRead;
  static const ArgRule<Args> rules[] = {
      {"state", Access::kReadWrite, false, kEither, {4, 5}, &Args::state},
      {"ring_k", kRead, false, kEither, {4, 5}, &Args::ring_k},
      {"ring_v", kRead, false, kEither, {4, 5}, &Args::ring_v},
      {"ring_g", kRead, false, kEither, {4, 5}, &Args::ring_g},
      {"ring_beta", kRead, false, kF32, {3, 4}, &Args::ring_beta},
      {"state_indices", kRead, false, kI32, {1}, &Args::state_indices},
      {"ring_indices", kRead, true, kI32, {1}, &Args::ring_indices},
      {"accept_lens", kRead, false, kI32, {1}, &Args::accept_lens},
      {"track_indices", kRead, true, kI32, {1}, &Args::track_indices},
      {"track_steps", kRead, true, kI32, {1}, &Args::track_steps},
      {"conv_states", Access::kReadWrite, true, kBF16, {3, 4}, &Args::conv_states},
      {"conv_scratch", kRead, true, kBF16, {4, 5}, &Args::conv_scratch},
      {"scratch_indices", kRead, true, kI32, {1}, &Args::scratch_indices},
      {"A_log", kRead, true, kF32, {1, 2}, &Args::A_log},
      {"dt_bias", kRead, true, kF32, {1, 2}, &Args::dt_bias},
  };
  return rules;
}

void check_values(const Contract& contract, const KdaReplayCommitProblem& p, ValueChecks checks) {
  check_indices(contract, "state_indices", p.state_indices, p.null_index, p.num_slots, "slot",
                ValueChecks::kRanges);
  const IndexList& rings = p.ring_indices.defined() ? p.ring_indices : p.state_indices;
  const char* const rings_name = p.ring_indices.defined() ? "ring_indices" : "state_indices";
  std::unordered_map<std::int32_t, std::int64_t> writers;
  const bool claims = checks == ValueChecks::kRangesAndDuplicates;
  for (std::int64_t n = 0; n < p.B; ++n) {
    if (!p.is_live(p.state_indices[n]) || p.accept_lens[n] <= 0) continue;
    check_at_most(contract, "accept_lens", p.accept_lens, n, p.L, "the tokens of a ring row");
    if (p.conv_states != nullptr)
      check_at_most(contract, "accept_lens", p.accept_lens, n, p.Ts,
                    "the tokens of a row of conv_scratch");
    check_row(contract, rings_name, rings, n, p.num_ring_rows, "ring row");
    if (p.scratch_indices.defined())
      check_row(contract, "scratch_indices", p.scratch_indices, n, p.num_scratch_rows,
                "row of conv_scratch");
    if (claims) claim_slot(contract, "state_indices", n, p.state_indices[n], writers);
    if (!p.track_indices.defined() || p.track_indices[n] <= p.null_index) continue;
    check_row(contract, "track_indices", p.track_indices, n, p.num_slots, "slot");
    check_at_most(contract, "track_steps", p.track_steps, n, p.L - 1, "the last of a ring row");
    const bool tracks = p.track_steps[n] >= 0 && p.track_steps[n] < p.accept_lens[n];
    if (tracks && p.track_indices[n] == p.state_indices[n])
      contract.fail(
          "track_indices", "must name another slot than the request's own",
          fmt::format("track_indices[{0}] = state_indices[{0}] = {1}", n, p.track_indices[n]));
    if (claims && tracks) claim_slot(contract, "track_indices", n, p.track_indices[n], writers);
  }
}

KdaReplayCommitProblem check(const KdaReplayCommitArgs& a, Purpose purpose) {
  const Contract contract("kda_replay_commit", purpose);
  contract.tensors(kda_replay_commit_args(), a);
  check_presence(contract, a);
  const Layers layers(contract, a);
  KdaReplayCommitProblem p;
  p.num_layers = contract.small("state", "layers", layers.count());
  p.B = contract.small("state_indices", "B", a.state_indices.shape[0]);
  p.num_slots = layers.size(a.state, 0);
  p.HV = contract.small("state", "HV", layers.size(a.state, 1));
  p.num_ring_rows = layers.size(a.ring_k, 0);
  p.H = contract.small("ring_k", "H", layers.size(a.ring_k, 1));
  p.L = contract.small("ring_k", "L", layers.size(a.ring_k, 2));
  p.C = contract.small("conv_states", "C", layers.size(a.conv_states, 2));
  p.num_scratch_rows = layers.size(a.conv_scratch, 0);
  p.Ts = contract.small("conv_scratch", "Ts", layers.size(a.conv_scratch, 1));
  check_shapes(contract, layers, a, p);
  contract.require(p.HV >= 1, "state", "must have at least one head", a.state);
  contract.small("state", "HV*128", p.HV * kD);
  contract.require(p.H >= 1 && p.HV % p.H == 0, "ring_k",
                   "must have heads that divide those of state", a.ring_k);
  check_layouts(contract, layers, a);
  contract.overlaps(kda_replay_commit_args(), a);
  contract.negative("lower_bound", a.lower_bound ? &*a.lower_bound : nullptr);
  contract.require(a.null_index >= -1, "null_index", "must be at least -1",
                   [&] { return std::to_string(a.null_index); });

  set_tensors(layers, a, p);
  p.state_indices = IndexList(a.state_indices);
  p.ring_indices = IndexList(a.ring_indices);
  p.accept_lens = IndexList(a.accept_lens);
  p.track_indices = IndexList(a.track_indices);
  p.track_steps = IndexList(a.track_steps);
  p.scratch_indices = IndexList(a.scratch_indices);
  p.has_lower_bound = a.lower_bound.has_value();
  p.lower_bound = a.lower_bound.value_or(0.0F);
  p.qk_l2norm = a.qk_l2norm;
  p.null_index = a.null_index;
  p.device = a.state.device;
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
