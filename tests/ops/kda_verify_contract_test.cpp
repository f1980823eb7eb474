// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_verify.h"
#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/kda_layer.h"
#include "tests/environment.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

constexpr const char* kOp = "kda_verify";

/// Three requests of 2 tokens, the second one padding, and a token that nobody owns.
Bundle without_side_outputs() {
  Bundle b = decode_layer({.B = 7, .H = 2, .slots = 5, .indices = {4, -1, 0}});
  b.tensors["conv_bias"] = constant(DType::kF32, {768}, 0.1);
  b.tensors["query_start_loc"] = integers(DType::kI32, {0, 2, 4, 6});
  b.tensors["conv_scratch"] = poisoned(DType::kBF16, {4, 3, 3, 768});
  b.tensors["scratch_indices"] = integers(DType::kI32, {3, 0, 1});
  b.scalars["max_query_len"] = "2";
  return b;
}

Bundle with_rings() {
  Bundle b = without_side_outputs();
  b.tensors["ring_k"] = poisoned(DType::kBF16, {6, 2, 4, 128});
  b.tensors["ring_v"] = poisoned(DType::kBF16, {6, 2, 4, 128});
  b.tensors["ring_g"] = poisoned(DType::kF32, {6, 2, 4, 128});
  b.tensors["ring_beta"] = poisoned(DType::kF32, {6, 2, 4});
  b.tensors["ring_indices"] = integers(DType::kI32, {5, -1, 2});
  return b;
}

Bundle with_snapshots() {
  Bundle b = without_side_outputs();
  b.tensors["snapshots"] = poisoned(DType::kF32, {4, 3, 2, 128, 128});
  return b;
}

std::function<void(Call&)> with_value(const char* name, int at, std::int32_t value) {
  return [=](Call& call) { static_cast<std::int32_t*>(call.tensors.at(name).data)[at] = value; };
}

std::function<void(Call&)> all_of(std::initializer_list<std::function<void(Call&)>> edits) {
  return [list = std::vector(edits)](Call& call) {
    for (const auto& edit : list) edit(call);
  };
}

class KdaVerifyContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaVerifyContract, Refuses) { expect_refused(*find_driver(kOp), with_rings(), GetParam()); }

class KdaVerifySnapshotContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaVerifySnapshotContract, Refuses) {
  expect_refused(*find_driver(kOp), with_snapshots(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, KdaVerifyContract,
    testing::Values(
        Violation{"mixed_narrow", "mixed_qkv", "must have shape [tokens, 3*H*128]",
                  with_size("mixed_qkv", 1, 767)},
        Violation{"g_other_tokens", "g", "must have shape [tokens, H*128]", with_size("g", 0, 6)},
        Violation{"conv_two_taps", "conv_states", "must have shape [slots, 3, 3*H*128]",
                  with_size("conv_states", 1, 2)},
        Violation{"conv_other_slots", "conv_states", "must have shape [slots, 3, 3*H*128]",
                  with_size("conv_states", 0, 4)},
        Violation{"weight_three_taps", "conv_weight", "must have shape [4, 3*H*128]",
                  with_size("conv_weight", 0, 3)},
        Violation{"bias_narrow", "conv_bias", "must have shape [3*H*128]",
                  with_size("conv_bias", 0, 256)},
        Violation{"a_log_short", "A_log", "must have shape [H]", with_size("A_log", 0, 1)},
        Violation{"dt_bias_narrow", "dt_bias", "must have shape [H*128]",
                  with_size("dt_bias", 0, 128)},
        Violation{"dt_bias_2d_and_short", "dt_bias", "must have shape [H, 128]",
                  all_of({with_rank("dt_bias", 2), with_size("dt_bias", 1, 127)})},
        Violation{"onorm_gate_short", "onorm_gate", "must have shape [tokens, H*128]",
                  with_size("onorm_gate", 0, 6)},
        Violation{"onorm_weight_short", "onorm_weight", "must have shape [128]",
                  with_size("onorm_weight", 0, 127)},
        Violation{"state_head_dim", "state", "must have shape [slots, H, 128, 128]",
                  with_size("state", 3, 64)},
        Violation{"query_start_loc_short", "query_start_loc", "must have shape [N + 1]",
                  with_size("query_start_loc", 0, 3)},
        Violation{"ring_indices_short", "ring_indices", "must have shape [N]",
                  with_size("ring_indices", 0, 2)},
        Violation{"scratch_indices_short", "scratch_indices", "must have shape [N]",
                  with_size("scratch_indices", 0, 2)},
        Violation{"no_heads", "beta", "must have at least one head", with_size("beta", 1, 0)},
        Violation{"out_narrow", "out", "must have shape [tokens, H*128]", with_size("out", 1, 128)},
        Violation{"ring_k_heads", "ring_k", "must have shape [ring_rows, H, L, 128]",
                  with_size("ring_k", 1, 1)},
        Violation{"ring_v_rows", "ring_v", "must have shape [ring_rows, H, L, 128]",
                  with_size("ring_v", 0, 5)},
        Violation{"ring_g_length", "ring_g", "must have shape [ring_rows, H, L, 128]",
                  with_size("ring_g", 2, 3)},
        Violation{"ring_beta_length", "ring_beta", "must have shape [ring_rows, H, L]",
                  with_size("ring_beta", 2, 3)},
        Violation{"ring_too_short", "ring_k", "must hold max_query_len tokens a row",
                  with_size("ring_k", 2, 1)},
        Violation{"scratch_taps", "conv_scratch", "must have shape [rows, Ts, 3, 3*H*128]",
                  with_size("conv_scratch", 2, 2)},
        Violation{"scratch_channels", "conv_scratch", "must have shape [rows, Ts, 3, 3*H*128]",
                  with_size("conv_scratch", 3, 256)},
        Violation{"scratch_too_short", "conv_scratch", "must hold max_query_len tokens a row",
                  with_size("conv_scratch", 1, 1)},
        Violation{"scratch_rows_in_order_but_few", "conv_scratch",
                  "must have a row for every request where scratch_indices is absent",
                  all_of({absent("scratch_indices"), with_size("conv_scratch", 0, 2)})}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    DTypes, KdaVerifyContract,
    testing::Values(
        Violation{"mixed_f32", "mixed_qkv", "must be bf16", with_dtype("mixed_qkv", DType::kF32)},
        Violation{"state_f16", "state", "must be bf16 or f32", with_dtype("state", DType::kF16)},
        Violation{"ring_k_f32", "ring_k", "must be bf16", with_dtype("ring_k", DType::kF32)},
        Violation{"ring_g_f16", "ring_g", "must be bf16 or f32", with_dtype("ring_g", DType::kF16)},
        Violation{"ring_beta_bf16", "ring_beta", "must be f32",
                  with_dtype("ring_beta", DType::kBF16)},
        Violation{"starts_i64", "query_start_loc", "must be i32",
                  with_dtype("query_start_loc", DType::kI64)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    Layouts, KdaVerifyContract,
    testing::Values(
        Violation{"mixed_strided", "mixed_qkv", "must have unit stride along its last axis",
                  with_stride("mixed_qkv", 1, 2)},
        Violation{"conv_states_strided", "conv_states", "must have unit stride along its last axis",
                  with_stride("conv_states", 2, 2)},
        Violation{"conv_weight_strided", "conv_weight", "must have unit stride along its last axis",
                  with_stride("conv_weight", 1, 2)},
        Violation{"conv_bias_strided", "conv_bias", "must have unit stride along its last axis",
                  with_stride("conv_bias", 0, 2)},
        Violation{"g_strided", "g", "must have unit stride along its last axis",
                  with_stride("g", 1, 2)},
        Violation{"beta_strided", "beta", "must have unit stride along its last axis",
                  with_stride("beta", 1, 2)},
        Violation{"a_log_strided", "A_log", "must have unit stride along its last axis",
                  with_stride("A_log", 0, 2)},
        Violation{"dt_bias_strided", "dt_bias", "must be dense from axis 0 on",
                  with_stride("dt_bias", 0, 2)},
        Violation{"onorm_gate_strided", "onorm_gate", "must have unit stride along its last axis",
                  with_stride("onorm_gate", 1, 2)},
        Violation{"onorm_weight_strided", "onorm_weight",
                  "must have unit stride along its last axis", with_stride("onorm_weight", 0, 2)},
        Violation{"out_strided", "out", "must have unit stride along its last axis",
                  with_stride("out", 1, 2)},
        Violation{"scratch_strided", "conv_scratch", "must have unit stride along its last axis",
                  with_stride("conv_scratch", 3, 2)},
        Violation{"state_not_dense", "state", "must be dense from axis 1 on",
                  with_stride("state", 2, 129)},
        Violation{"ring_k_not_dense", "ring_k", "must be dense from axis 1 on",
                  with_stride("ring_k", 2, 129)},
        Violation{"ring_v_not_dense", "ring_v", "must be dense from axis 1 on",
                  with_stride("ring_v", 1, 600)},
        Violation{"ring_g_not_dense", "ring_g", "must be dense from axis 1 on",
                  with_stride("ring_g", 3, 2)},
        Violation{"negative_stride", "g", "must have no negative stride",
                  with_stride("g", 0, -256)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  with_stride("out", 0, 100)},
        Violation{"ring_rows_overlap", "ring_v", "no two of its elements may share",
                  with_stride("ring_v", 0, 1023)},
        Violation{"ring_beta_overlaps", "ring_beta", "no two of its elements may share",
                  with_stride("ring_beta", 1, 3)},
        Violation{"scratch_taps_overlap", "conv_scratch", "no two of its elements may share",
                  with_stride("conv_scratch", 2, 767)},
        Violation{"scratch_tokens_overlap", "conv_scratch", "no two of its elements may share",
                  with_stride("conv_scratch", 1, 2 * 768)},
        Violation{
            "shared_scratch_channels_overlap", "conv_scratch", "no two of its elements may share",
            all_of({with_stride("conv_scratch", 1, 700), with_stride("conv_scratch", 2, 700)})},
        Violation{
            "shared_scratch_rows_overlap", "conv_scratch", "no two of its elements may share",
            all_of({with_stride("conv_scratch", 0, 5 * 768 - 1),
                    with_stride("conv_scratch", 1, 768), with_stride("conv_scratch", 2, 768)})}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    Overlaps, KdaVerifyContract,
    testing::Values(
        Violation{"ring_v_is_ring_k", "ring_k", "must not overlap ring_v",
                  aliasing("ring_v", "ring_k")},
        Violation{"scratch_on_ring_k", "ring_k", "must not overlap conv_scratch",
                  sharing_memory("ring_k", "conv_scratch")},
        Violation{"out_on_scratch", "conv_scratch", "must not overlap out",
                  sharing_memory("out", "conv_scratch")},
        Violation{"ring_g_on_ring_beta", "ring_g", "must not overlap ring_beta",
                  aliasing("ring_beta", "ring_g")},
        Violation{"shared_scratch_is_mixed", "conv_scratch", "must not overlap mixed_qkv",
                  all_of({with_stride("conv_scratch", 1, 768), with_stride("conv_scratch", 2, 768),
                          aliasing("mixed_qkv", "conv_scratch")})}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    Scalars, KdaVerifyContract,
    testing::Values(
        Violation{"ring_v_absent", "ring_v", "must be given exactly when ring_k is",
                  absent("ring_v")},
        Violation{"ring_g_absent", "ring_g", "must be given exactly when ring_k is",
                  absent("ring_g")},
        Violation{"ring_beta_absent", "ring_beta", "must be given exactly when ring_k is",
                  absent("ring_beta")},
        Violation{"ring_k_absent", "ring_v", "must be given exactly when ring_k is",
                  absent("ring_k")},
        Violation{"weight_without_gate", "onorm_weight", "must be given exactly when onorm_gate is",
                  absent("onorm_gate")},
        Violation{"gate_without_weight", "onorm_weight", "must be given exactly when onorm_gate is",
                  absent("onorm_weight")},
        Violation{"no_gate_parameters", "A_log", "must be given where lower_bound is absent",
                  all_of({absent("A_log"), with_scalar("lower_bound", "")})},
        Violation{"null_index_below_minus_1", "null_index", "must be at least -1",
                  with_scalar("null_index", "-3")},
        Violation{"scale_inf", "scale", "must be finite", with_scalar("scale", "-inf")},
        Violation{"lower_bound_0", "lower_bound", "must be finite and below 0",
                  with_scalar("lower_bound", "0")},
        Violation{"eps_negative", "eps_o", "must be finite and at least 0",
                  with_scalar("eps_o", "-1e-5")},
        Violation{"eps_nan", "eps_o", "must be finite and at least 0", with_scalar("eps_o", "nan")},
        Violation{"round_conv_unknown", "round_conv", "must be bf16 or f32",
                  with_scalar("round_conv", "fp8")},
        Violation{"round_o_unknown", "round_o", "must be bf16 or f32",
                  with_scalar("round_o", "f16")},
        Violation{"max_query_len_17", "max_query_len", "must be in 0 .. 16",
                  with_scalar("max_query_len", "17")},
        Violation{"max_query_len_negative", "max_query_len", "must be in 0 .. 16",
                  with_scalar("max_query_len", "-1")},
        Violation{"max_query_len_not_whole", "max_query_len",
                  "must be given where N does not divide", with_scalar("max_query_len", "0")}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    Values, KdaVerifyContract,
    testing::Values(
        Violation{"index_past_the_pool", "state_indices",
                  "must be at most -1 (none) or a slot below 5", with_value("state_indices", 0, 5)},
        Violation{"starts_negative", "query_start_loc", "must begin at 0 or later",
                  with_value("query_start_loc", 0, -1)},
        Violation{"starts_decrease", "query_start_loc", "must not decrease",
                  with_value("query_start_loc", 2, 1)},
        Violation{"starts_decrease_far", "query_start_loc", "must not decrease",
                  with_value("query_start_loc", 3, -2147483647 - 1)},
        Violation{"request_too_long", "query_start_loc",
                  "must give a request at most max_query_len = 2 tokens",
                  with_value("query_start_loc", 3, 7)},
        Violation{"request_far_too_long", "query_start_loc",
                  "must give a request at most max_query_len = 2 tokens",
                  with_value("query_start_loc", 3, 2147483647)},
        Violation{"starts_leave_the_tokens", "query_start_loc", "must end at most at tokens = 7",
                  all_of({with_value("query_start_loc", 2, 5), with_value("query_start_loc", 3, 8),
                          with_scalar("max_query_len", "3")})},
        Violation{"ring_row_past", "ring_indices",
                  "must give every live request a ring row below 6",
                  with_value("ring_indices", 2, 6)},
        Violation{"ring_row_negative", "ring_indices",
                  "must give every live request a ring row below 6",
                  with_value("ring_indices", 0, -1)},
        Violation{
            "slot_past_the_rings", "state_indices",
            "must give every live request a ring row below 4",
            all_of({absent("ring_indices"), with_size("ring_k", 0, 4), with_size("ring_v", 0, 4),
                    with_size("ring_g", 0, 4), with_size("ring_beta", 0, 4)})},
        Violation{"scratch_row_past", "scratch_indices",
                  "must give every live request a conv_scratch row below 4",
                  with_value("scratch_indices", 0, 4)},
        Violation{"scratch_row_negative", "scratch_indices",
                  "must give every live request a conv_scratch row below 4",
                  with_value("scratch_indices", 2, -1)}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(
    Snapshots, KdaVerifySnapshotContract,
    testing::Values(Violation{"state_dtype", "snapshots", "must have the dtype of state",
                              with_dtype("snapshots", DType::kBF16)},
                    Violation{"heads", "snapshots", "must have shape [rows, Ts, H, 128, 128]",
                              with_size("snapshots", 2, 1)},
                    Violation{"too_short", "snapshots", "must hold max_query_len tokens a row",
                              with_size("snapshots", 1, 1)},
                    Violation{"rows_in_order_but_few", "snapshots",
                              "must have a row for every request where scratch_indices is absent",
                              all_of({absent("scratch_indices"), with_size("snapshots", 0, 2)})},
                    Violation{"not_dense", "snapshots", "must be dense from axis 2 on",
                              with_stride("snapshots", 3, 129)},
                    Violation{"tokens_overlap", "snapshots", "no two of its elements may share",
                              with_stride("snapshots", 1, 16384)},
                    Violation{
                        "row_past", "scratch_indices",
                        "must give every live request a snapshot row below 4",
                        all_of({absent("conv_scratch"), with_value("scratch_indices", 0, 4)})}),
    violation_name);

INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaVerifyContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp), with_rings())),
                         violation_name);
INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaVerifySnapshotContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver(kOp),
                                                                 with_snapshots())),
                         violation_name);

TEST(KdaVerifyRules, SnapshotsAndRingsExcludeEachOther) {
  Bundle bundle = with_rings();
  bundle.tensors["snapshots"] = with_snapshots().tensors.at("snapshots");
  const Driver& driver = *find_driver(kOp);
  expect_refused([&] { driver.run(host_call(driver, bundle), {}); }, "snapshots",
                 "must be absent where the rings are given");
}

TEST(KdaVerifyRules, SixteenTokensARequestAreTheMost) {
  Bundle bundle = without_side_outputs();
  bundle.tensors.erase("conv_scratch");
  bundle.tensors.erase("scratch_indices");
  bundle.scalars["max_query_len"] = "";
  const Driver& driver = *find_driver(kOp);
  Call call = host_call(driver, bundle);
  for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate", "out"})
    call.tensors.at(name).shape[0] = 51;
  expect_refused([&] { driver.workspace_size(call, {}); }, "mixed_qkv",
                 "must have at most 16 tokens a request");
  for (const char* name : {"mixed_qkv", "g", "beta", "onorm_gate", "out"})
    call.tensors.at(name).shape[0] = 48;
  EXPECT_NO_THROW(driver.workspace_size(call, {}));
}

TEST(KdaVerifyRules, IndicesOfWhatIsNotThereAreRefused) {
  const Driver& driver = *find_driver(kOp);
  Bundle bundle = without_side_outputs();
  bundle.tensors["ring_indices"] = with_rings().tensors.at("ring_indices");
  expect_refused([&] { driver.run(host_call(driver, bundle), {}); }, "ring_indices",
                 "is used only with rings");
  bundle = without_side_outputs();
  bundle.tensors.erase("conv_scratch");
  expect_refused([&] { driver.run(host_call(driver, bundle), {}); }, "scratch_indices",
                 "is used only with conv_scratch or snapshots");
}

TEST(KdaVerifyRules, AScratchThatSharesTapsIsAccepted) {
  Bundle bundle = with_rings();
  const Driver& driver = *find_driver(kOp);
  Call call = host_call(driver, bundle);
  all_of({with_stride("conv_scratch", 1, 768), with_stride("conv_scratch", 2, 768)})(call);
  with_stride("conv_scratch", 0, 5 * 768)(call);
  EXPECT_NO_THROW(driver.run(call, {}));
}

TEST(KdaVerifyScalars, AValueOutsideItsEnumIsRefused) {
  Bundle bundle = with_rings();
  KdaVerifyArgs args;
  set_tensors(kda_verify_args(), host_call(*find_driver(kOp), bundle), args);
  args.lower_bound = -5.0F;
  args.max_query_len = 2;
  args.round_conv = static_cast<Rounding>(2);
  expect_refused([&] { kda_verify(args); }, "round_conv", "must be one of its enumerators");
  args.round_conv = Rounding::kBF16;
  args.round_o = static_cast<Rounding>(-1);
  expect_refused([&] { kda_verify(args); }, "round_o", "must be one of its enumerators");
}

/// Refused under K3_DEBUG_CHECKS=1 and only there.
void expect_debug_refusal(Bundle bundle, const char* argument, const char* rule) {
  const Driver& driver = *find_driver(kOp);
  EXPECT_NO_THROW(driver.run(host_call(driver, bundle), {}));
  const Environment checks("K3_DEBUG_CHECKS", "1");
  expect_refused([&] { driver.run(host_call(driver, bundle), {}); }, argument, rule);
}

TEST(KdaVerifyDebugChecks, SharedRowsAreRefused) {
  Bundle rings = with_rings();
  rings.tensors["ring_indices"] = integers(DType::kI32, {5, 5, 5});
  expect_debug_refusal(rings, "ring_indices", "must give every live request a ring row of its own");
  Bundle scratch = with_rings();
  scratch.tensors["scratch_indices"] = integers(DType::kI32, {1, 0, 1});
  expect_debug_refusal(scratch, "scratch_indices",
                       "must give every live request a conv_scratch row of its own");
  Bundle snapshots = with_snapshots();
  snapshots.tensors.erase("conv_scratch");
  snapshots.tensors["scratch_indices"] = integers(DType::kI32, {1, 0, 1});
  expect_debug_refusal(snapshots, "scratch_indices",
                       "must give every live request a snapshot row of its own");
}

/// The pools are only read, so a slot may serve two requests, unless it also names the ring row.
TEST(KdaVerifyDebugChecks, OneSlotMayServeTwoRequests) {
  Bundle bundle = with_rings();
  bundle.tensors["state_indices"] = integers(DType::kI32, {4, -1, 4});
  const Driver& driver = *find_driver(kOp);
  {
    const Environment checks("K3_DEBUG_CHECKS", "1");
    EXPECT_NO_THROW(driver.run(host_call(driver, bundle), {}));
  }
  bundle.tensors.erase("ring_indices");
  expect_debug_refusal(bundle, "state_indices",
                       "must give every live request a ring row of its own");
}

}  // namespace
}  // namespace k3::harness
