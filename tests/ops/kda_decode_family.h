// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <map>

#include "harness/inputs.h"
#include "harness/ops/kda_layer.h"
#include "k3/error.h"
#include "tests/ops/machines.h"

/// What the tests of the decode family share: kda_fused_decode, kda_packed_decode, kda_verify,
/// kda_replay_commit and kda_output_norm promise equal bits to each other, on every backend.
namespace k3::harness {

inline constexpr std::int64_t kHeadDim = 128;
inline constexpr const char* kFamily[] = {"kda_fused_decode", "kda_packed_decode", "kda_verify",
                                          "kda_replay_commit", "kda_output_norm"};
inline constexpr const char* kTokenTensors[] = {"mixed_qkv", "g", "beta", "onorm_gate"};

/// Tests of one op, a Machine at a time.
class FamilyTest : public MachineTest {
 protected:
  /// An op that the one under test is held against.
  static Bundle run_other(const char* op, const Bundle& bundle) {
    return run_on(GetParam().on, op, bundle);
  }
};

/// Tests of what only a device has, an op at a time.
class FamilyOnDevice : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
  }
};

inline std::string device_test_name(const testing::TestParamInfo<const char*>& info) {
  return std::string("on_cuda_") + info.param;
}

/// Values that differ from row to row of the pool, unlike the makers' of kda_layer.h.
inline void draw_pools(Bundle& bundle, DType state, std::uint64_t seed) {
  Random random(seed);
  bundle.tensors["state"] = uniform(random, state, bundle.tensors.at("state").shape(), -2.0, 2.0);
  if (bundle.tensors.contains("snapshots"))
    bundle.tensors["snapshots"] = poisoned(state, bundle.tensors.at("snapshots").shape());
}

struct StepOptions {
  DType state = DType::kF32;
  bool safe_gate = true;
  bool norm = true;
  const char* round_o = "f32";
  const char* round_conv = "bf16";
};

inline std::string text_of(const StepOptions& o) {
  return std::string(o.state == DType::kF32 ? "f32 state" : "bf16 state") +
         (o.safe_gate ? ", safe gate" : ", softplus") + (o.norm ? ", norm" : "") + ", round_o " +
         o.round_o + ", round_conv " + o.round_conv;
}

/// A decode or verify call of kda_layer.h under these options, with a bias.
inline void apply(const StepOptions& o, Bundle& bundle) {
  draw_pools(bundle, o.state, 23);
  if (!o.safe_gate) bundle.scalars["lower_bound"] = "";
  bundle.scalars["round_o"] = o.round_o;
  bundle.scalars["round_conv"] = o.round_conv;
  if (bundle.tensors.contains("conv_weight")) {
    Random random(29);
    const std::int64_t channels = bundle.tensors.at("conv_weight").shape()[1];
    bundle.tensors["conv_bias"] = normal(random, DType::kF32, {channels}, 0.1);
  }
  if (o.norm) return;
  bundle.tensors.erase("onorm_gate");
  bundle.tensors.erase("onorm_weight");
}

using Bytes = std::vector<std::byte>;

/// What the requests of a verify call have after each of their tokens, by request and token.
struct Steps {
  std::vector<std::vector<Bytes>> state;   ///< [n][t]: before token t, so one more than tokens
  std::vector<std::vector<Bytes>> window;  ///< the same
  std::vector<std::vector<Bytes>> out;     ///< [n][t]: of token t
};

/// The chains of a verify call by single calls of kda_fused_decode. A request past its last token
/// is padding there.
inline Steps decode_steps(RunOn on, const Bundle& verify) {
  const auto starts = verify.tensors.at("query_start_loc").values();
  const auto slots = verify.tensors.at("state_indices").values();
  const std::int64_t num_slots = verify.tensors.at("state").shape()[0];
  const auto N = slots.size();
  Bundle step;
  for (const char* name : {"conv_states", "conv_weight", "conv_bias", "A_log", "dt_bias",
                           "onorm_weight", "state", "state_indices"})
    if (verify.tensors.contains(name)) step.tensors[name] = verify.tensors.at(name).clone();
  for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate", "out"})
    if (verify.tensors.contains(name))
      step.tensors[name] = poisoned(
          DType::kBF16, {static_cast<std::int64_t>(N), verify.tensors.at(name).shape()[1]});
  step.scalars = verify.scalars;
  step.scalars.erase("max_query_len");

  Steps steps;
  const auto record = [&](std::size_t n) {
    const auto slot = static_cast<std::int64_t>(slots[n]);
    const auto state = piece(step.tensors.at("state"), slot, num_slots);
    const auto window = piece(step.tensors.at("conv_states"), slot, num_slots);
    steps.state[n].emplace_back(state.begin(), state.end());
    steps.window[n].emplace_back(window.begin(), window.end());
  };
  steps.state.resize(N);
  steps.window.resize(N);
  steps.out.resize(N);
  for (std::size_t n = 0; n < N; ++n)
    if (slots[n] >= 0) record(n);
  for (bool any = true; any;) {
    any = false;
    const std::size_t t = steps.out[0].size();
    std::vector<bool> live(N);
    for (std::size_t n = 0; n < N; ++n) {
      const auto token = static_cast<std::int64_t>(starts[n]) + static_cast<std::int64_t>(t);
      live[n] = slots[n] >= 0 && token < static_cast<std::int64_t>(starts[n + 1]);
      any = any || live[n];
      step.tensors.at("state_indices").set(static_cast<std::int64_t>(n), live[n] ? slots[n] : -1.0);
      if (!live[n]) continue;
      for (const char* name : kTokenTensors) {
        if (!verify.tensors.contains(name)) continue;
        const Tensor& all = verify.tensors.at(name);
        const auto row = piece(all, token, all.shape()[0]);
        std::memcpy(step.tensors.at(name).storage() + n * row.size(), row.data(), row.size());
      }
    }
    if (!any) break;
    run_once(*find_driver("kda_fused_decode"), step, {.on = on});
    for (std::size_t n = 0; n < N; ++n) {
      steps.out[n].emplace_back();
      if (!live[n]) continue;
      const auto out =
          piece(step.tensors.at("out"), static_cast<std::int64_t>(n), static_cast<std::int64_t>(N));
      steps.out[n].back().assign(out.begin(), out.end());
      record(n);
    }
  }
  return steps;
}

/// Copies row `from_row` of the first axis to row `row` of `to`, whatever the strides. What is NaN
/// in `from` was never written and stays.
inline void put_row(Tensor& to, std::int64_t row, const Tensor& from, std::int64_t from_row) {
  const std::int64_t size = from.numel() / from.shape()[0];
  for (std::int64_t i = 0; i < size; ++i) {
    const double value = from.get(from_row * size + i);
    if (!std::isnan(value)) to.set(row * size + i, value);
  }
}

}  // namespace k3::harness
