// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/environment.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_replay_commit";

/// 2 layers, 3 requests on 5 slots, 6 ring rows of 4 tokens, 2 k heads and 4 value heads; every
/// optional tensor but those of a raw gate.
Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["state"] = normal(random, DType::kF32, {2, 5, 4, 128, 128});
  b.tensors["ring_k"] = normal(random, DType::kBF16, {2, 6, 2, 4, 128});
  b.tensors["ring_v"] = normal(random, DType::kBF16, {2, 6, 4, 4, 128});
  b.tensors["ring_g"] = uniform(random, DType::kF32, {2, 6, 4, 4, 128}, -5.0, 0.0);
  b.tensors["ring_beta"] = uniform(random, DType::kF32, {2, 6, 4, 4}, 0.0, 1.0);
  b.tensors["state_indices"] = integers(DType::kI32, {4, -1, 0});
  b.tensors["ring_indices"] = integers(DType::kI32, {5, -1, 1});
  b.tensors["accept_lens"] = integers(DType::kI32, {4, 9, 2});
  b.tensors["track_indices"] = integers(DType::kI32, {2, 99, 3});
  b.tensors["track_steps"] = integers(DType::kI32, {3, 99, -1});
  b.tensors["conv_states"] = normal(random, DType::kBF16, {2, 5, 3, 40});
  b.tensors["conv_scratch"] = normal(random, DType::kBF16, {2, 6, 4, 3, 40});
  b.tensors["scratch_indices"] = integers(DType::kI32, {5, 99, 0});
  return b;
}

/// The same call with raw gates, without a layer axis.
Bundle valid_raw_bundle() {
  Random random(2);
  Bundle b;
  b.tensors["state"] = normal(random, DType::kF32, {5, 4, 128, 128});
  b.tensors["ring_k"] = normal(random, DType::kBF16, {6, 2, 4, 128});
  b.tensors["ring_v"] = normal(random, DType::kBF16, {6, 4, 4, 128});
  b.tensors["ring_g"] = normal(random, DType::kBF16, {6, 4, 4, 128});
  b.tensors["ring_beta"] = uniform(random, DType::kF32, {6, 4, 4}, 0.0, 1.0);
  b.tensors["A_log"] = normal(random, DType::kF32, {4});
  b.tensors["dt_bias"] = normal(random, DType::kF32, {512});
  b.tensors["state_indices"] = integers(DType::kI32, {4, -1, 0});
  b.tensors["accept_lens"] = integers(DType::kI32, {4, 4, 2});
  b.tensors["conv_states"] = normal(random, DType::kBF16, {5, 3, 40});
  b.tensors["conv_scratch"] = normal(random, DType::kBF16, {3, 4, 3, 40});
  b.scalars = {{"lower_bound", "-5"}};
  return b;
}

std::function<void(Call&)> with_entry(const char* list, int n, std::int32_t value) {
  return [=](Call& call) { static_cast<std::int32_t*>(call.tensors.at(list).data)[n] = value; };
}

class KdaReplayCommitContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaReplayCommitContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_bundle(), GetParam());
}

constexpr const char* kShared = "no two of its elements may share";
constexpr const char* kOnlyRaw = "is used only with a bf16 ring_g";

INSTANTIATE_TEST_SUITE_P(
    Shapes, KdaReplayCommitContract,
    testing::Values(
        Violation{"ring_k_without_layers", "ring_k",
                  "must have shape [layers, ring_rows, H, L, 128]", with_rank("ring_k", 4)},
        Violation{"ring_k_other_layers", "ring_k", "must have shape [layers, ring_rows, H, L, 128]",
                  with_size("ring_k", 0, 1)},
        Violation{"ring_k_head_dim", "ring_k", "must have shape [layers, ring_rows, H, L, 128]",
                  with_size("ring_k", 4, 64)},
        Violation{"ring_v_other_rows", "ring_v", "must have shape [layers, ring_rows, HV, L, 128]",
                  with_size("ring_v", 1, 5)},
        Violation{"ring_v_of_k_heads", "ring_v", "must have shape [layers, ring_rows, HV, L, 128]",
                  with_size("ring_v", 2, 2)},
        Violation{"ring_g_short", "ring_g", "must have shape [layers, ring_rows, HV, L, 128]",
                  with_size("ring_g", 3, 3)},
        Violation{"ring_beta_short", "ring_beta", "must have shape [layers, ring_rows, HV, L]",
                  with_size("ring_beta", 3, 3)},
        Violation{"state_head_dim", "state", "must have shape [layers, slots, HV, 128, 128]",
                  with_size("state", 4, 64)},
        Violation{"k_heads_do_not_divide", "ring_k", "must have heads that divide those of state",
                  with_size("ring_k", 2, 3)},
        Violation{"no_k_heads", "ring_k", "must have heads that divide those of state",
                  with_size("ring_k", 2, 0)},
        Violation{"no_value_heads", "state", "must have at least one head",
                  [](Call& c) {
                    for (const char* name : {"state", "ring_v", "ring_g", "ring_beta"})
                      with_size(name, 2, 0)(c);
                  }},
        Violation{"conv_other_slots", "conv_states", "must have shape [layers, slots, 3, C]",
                  with_size("conv_states", 1, 4)},
        Violation{"conv_two_taps", "conv_states", "must have shape [layers, slots, 3, C]",
                  with_size("conv_states", 2, 2)},
        Violation{"scratch_other_channels", "conv_scratch",
                  "must have shape [layers, rows, Ts, 3, C]", with_size("conv_scratch", 4, 39)},
        Violation{"rings_short", "ring_indices", "must have shape [B]",
                  with_size("ring_indices", 0, 2)},
        Violation{"accept_short", "accept_lens", "must have shape [B]",
                  with_size("accept_lens", 0, 2)},
        Violation{"track_short", "track_indices", "must have shape [B]",
                  with_size("track_indices", 0, 2)},
        Violation{"steps_short", "track_steps", "must have shape [B]",
                  with_size("track_steps", 0, 2)},
        Violation{"scratch_indices_short", "scratch_indices", "must have shape [B]",
                  with_size("scratch_indices", 0, 2)},
        Violation{"too_few_scratch_rows", "conv_scratch",
                  "must have a row for every request without scratch_indices",
                  [](Call& c) {
                    c.tensors.erase("scratch_indices");
                    with_size("conv_scratch", 1, 2)(c);
                  }},
        Violation{"state_not_dense", "state", "must be dense from axis 2 on",
                  with_stride("state", 3, 129)},
        Violation{"ring_k_not_dense", "ring_k", "must be dense from axis 2 on",
                  with_stride("ring_k", 2, 513)},
        Violation{"ring_v_not_dense", "ring_v", "must be dense from axis 2 on",
                  with_stride("ring_v", 3, 129)},
        Violation{"ring_g_not_dense", "ring_g", "must be dense from axis 2 on",
                  with_stride("ring_g", 3, 129)},
        Violation{"ring_beta_not_dense", "ring_beta", "must be dense from axis 2 on",
                  with_stride("ring_beta", 3, 2)},
        Violation{"conv_strided", "conv_states", "must have unit stride along its last axis",
                  with_stride("conv_states", 3, 2)},
        Violation{"scratch_strided", "conv_scratch", "must have unit stride along its last axis",
                  with_stride("conv_scratch", 4, 2)},
        Violation{"slots_overlap", "state", kShared, with_stride("state", 1, 16384)},
        Violation{"layers_overlap", "state", kShared, with_stride("state", 0, 4 * 65536)},
        Violation{"layers_are_one", "state", kShared, with_stride("state", 0, 0)},
        Violation{"taps_overlap", "conv_states", kShared, with_stride("conv_states", 2, 39)},
        Violation{"negative_stride", "ring_g", "must have no negative stride",
                  with_stride("ring_g", 0, -1)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    Values, KdaReplayCommitContract,
    testing::Values(
        Violation{"ring_v_other_dtype", "ring_v", "must have the dtype of ring_k",
                  with_dtype("ring_v", DType::kF32)},
        Violation{"steps_without_track", "track_steps", "must be given exactly when track_indices",
                  absent("track_indices")},
        Violation{"track_without_steps", "track_steps", "must be given exactly when track_indices",
                  absent("track_steps")},
        Violation{"scratch_without_conv", "conv_scratch", "must be given exactly when conv_states",
                  absent("conv_states")},
        Violation{"conv_without_scratch", "conv_scratch", "must be given exactly when conv_states",
                  absent("conv_scratch")},
        Violation{"scratch_indices_alone", "scratch_indices", "is used only with conv_scratch",
                  [](Call& c) {
                    c.tensors.erase("conv_states");
                    c.tensors.erase("conv_scratch");
                  }},
        Violation{"lower_bound_of_log_decays", "lower_bound", kOnlyRaw,
                  with_scalar("lower_bound", "-5")},
        Violation{"null_index_below_minus_1", "null_index", "must be at least -1",
                  with_scalar("null_index", "-2")},
        Violation{"slot_past_the_pool", "state_indices",
                  "must be at most -1 (none) or a slot below 5", with_entry("state_indices", 0, 5)},
        Violation{"accept_past_the_ring", "accept_lens",
                  "must be at most 4 (the tokens of a ring row)", with_entry("accept_lens", 2, 5)},
        Violation{"accept_past_the_scratch", "accept_lens",
                  "must be at most 3 (the tokens of a row of conv_scratch)",
                  with_size("conv_scratch", 2, 3)},
        Violation{"ring_row_past_the_rings", "ring_indices", "must be a ring row below 6",
                  with_entry("ring_indices", 0, 6)},
        Violation{"ring_row_negative", "ring_indices", "must be a ring row below 6",
                  with_entry("ring_indices", 2, -1)},
        Violation{"slot_is_no_ring_row", "state_indices", "must be a ring row below 4",
                  [](Call& c) {
                    c.tensors.erase("ring_indices");
                    for (const char* name : {"ring_k", "ring_v", "ring_g", "ring_beta"})
                      with_size(name, 1, 4)(c);
                  }},
        Violation{"scratch_row_past", "scratch_indices", "must be a row of conv_scratch below 6",
                  with_entry("scratch_indices", 2, 6)},
        Violation{"scratch_row_negative", "scratch_indices",
                  "must be a row of conv_scratch below 6", with_entry("scratch_indices", 2, -1)},
        Violation{"track_past_the_pool", "track_indices", "must be a slot below 5",
                  with_entry("track_indices", 2, 5)},
        Violation{"step_past_the_ring", "track_steps", "must be at most 3 (the last of a ring row)",
                  with_entry("track_steps", 0, 4)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaReplayCommitContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_bundle())),
                         violation_name);

class KdaReplayCommitRawContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaReplayCommitRawContract, Refuses) {
  expect_refused(*find_driver(kOp), valid_raw_bundle(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, KdaReplayCommitRawContract,
    testing::Values(
        Violation{"a_log_of_k_heads", "A_log", "must have shape [HV]", with_size("A_log", 0, 2)},
        Violation{"dt_bias_short", "dt_bias", "must have shape [HV*128]",
                  with_size("dt_bias", 0, 256)},
        Violation{"ring_k_with_layers", "ring_k", "must have shape [ring_rows, H, L, 128]",
                  with_rank("ring_k", 5)},
        Violation{"a_log_strided", "A_log", "must be dense from axis 0 on",
                  with_stride("A_log", 0, 2)},
        Violation{"dt_bias_strided", "dt_bias", "must be dense from axis 0 on",
                  with_stride("dt_bias", 0, 2)},
        Violation{"a_log_of_log_decays", "A_log", kOnlyRaw, with_dtype("ring_g", DType::kF32)},
        Violation{"dt_bias_of_log_decays", "dt_bias", kOnlyRaw,
                  [](Call& c) {
                    c.tensors.erase("A_log");
                    with_dtype("ring_g", DType::kF32)(c);
                  }},
        Violation{"lower_bound_0", "lower_bound", "must be finite and below 0",
                  with_scalar("lower_bound", "0")},
        Violation{"no_gate_parameters", "A_log",
                  "must be given with a bf16 ring_g where lower_bound is absent",
                  [](Call& c) {
                    c.tensors.erase("A_log");
                    c.scalars["lower_bound"] = "";
                  }}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaReplayCommitRawContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 valid_raw_bundle())),
                         violation_name);

TEST(KdaReplayCommitRules, ATrackedSlotIsNotTheRequestsOwn) {
  const Driver& driver = *find_driver(kOp);
  Bundle bundle = valid_bundle();
  Call call = host_call(driver, bundle);
  with_entry("track_indices", 0, 4)(call);
  expect_refused([&] { driver.run(call, {}); }, "track_indices",
                 "must name another slot than the request's own");
}

TEST(KdaReplayCommitDebugChecks, OneWriterForEverySlot) {
  const Driver& driver = *find_driver(kOp);
  const Environment checks("K3_DEBUG_CHECKS", "1");
  const auto run = [&](const std::function<void(Call&)>& edit) {
    Bundle bundle = valid_bundle();
    const Call call = host_call(driver, bundle);
    Call edited = call;
    edit(edited);
    driver.run(edited, {});
  };
  constexpr const char* kRule = "must give every live request slots of its own";
  EXPECT_NO_THROW(run([](Call&) {}));
  expect_refused([&] { run(with_entry("state_indices", 2, 4)); }, "state_indices", kRule);
  expect_refused([&] { run(with_entry("track_indices", 0, 0)); }, "state_indices", kRule);
  expect_refused([&] { run(with_entry("state_indices", 2, 2)); }, "state_indices", kRule);
  // A request that takes nothing over writes nothing; a step of -1 is no track.
  EXPECT_NO_THROW(run([](Call& c) {
    with_entry("state_indices", 2, 4)(c);
    with_entry("accept_lens", 2, 0)(c);
  }));
  EXPECT_NO_THROW(run(with_entry("track_indices", 2, 4)));
}

}  // namespace
}  // namespace k3::harness
