// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_fused_decode.h"
#include "harness/inputs.h"
#include "harness/ops/args.h"
#include "harness/ops/kda_layer.h"
#include "tests/environment.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Bundle b = decode_layer({.B = 3, .H = 2, .slots = 5, .indices = {4, -1, 0}});
  b.tensors["conv_bias"] = constant(DType::kF32, {768}, 0.1);
  return b;
}

std::function<void(Call&)> with_index(int row, std::int32_t slot) {
  return [=](Call& call) {
    static_cast<std::int32_t*>(call.tensors.at("state_indices").data)[row] = slot;
  };
}

class KdaFusedDecodeContract : public testing::TestWithParam<Violation> {};

TEST_P(KdaFusedDecodeContract, Refuses) {
  expect_refused(*find_driver("kda_fused_decode"), valid_bundle(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, KdaFusedDecodeContract,
    testing::Values(
        Violation{"mixed_absent", "mixed_qkv", "must be given", absent("mixed_qkv")},
        Violation{"state_absent", "state", "must be given", absent("state")},
        Violation{"out_absent", "out", "must be given", absent("out")},
        Violation{"indices_absent", "state_indices", "must be given", absent("state_indices")},
        Violation{"mixed_f32", "mixed_qkv", "must be bf16", with_dtype("mixed_qkv", DType::kF32)},
        Violation{"weight_bf16", "conv_weight", "must be f32",
                  with_dtype("conv_weight", DType::kBF16)},
        Violation{"state_f16", "state", "must be bf16 or f32", with_dtype("state", DType::kF16)},
        Violation{"indices_i64", "state_indices", "must be i32",
                  with_dtype("state_indices", DType::kI64)},
        Violation{"indices_rank_2", "state_indices", "must have rank 1",
                  with_rank("state_indices", 2)},
        Violation{"state_rank_3", "state", "must have rank 4", with_rank("state", 3)},
        Violation{"mixed_narrow", "mixed_qkv", "must have shape [B, 3*H*128]",
                  with_size("mixed_qkv", 1, 767)},
        Violation{"g_other_batch", "g", "must have shape [B, H*128]", with_size("g", 0, 2)},
        Violation{"conv_two_taps", "conv_states", "must have shape [slots, 3, 3*H*128]",
                  with_size("conv_states", 1, 2)},
        Violation{"conv_other_slots", "conv_states", "must have shape [slots, 3, 3*H*128]",
                  with_size("conv_states", 0, 4)},
        Violation{"weight_three_taps", "conv_weight", "must have shape [4, 3*H*128]",
                  with_size("conv_weight", 0, 3)},
        Violation{"bias_narrow", "conv_bias", "must have shape [3*H*128]",
                  with_size("conv_bias", 0, 256)},
        Violation{"a_log_padded", "A_log", "must have shape [H]", with_size("A_log", 0, 1)},
        Violation{"dt_bias_narrow", "dt_bias", "must have shape [H*128]",
                  with_size("dt_bias", 0, 128)},
        Violation{"state_head_dim", "state", "must have shape [slots, H, 128, 128]",
                  with_size("state", 3, 64)},
        Violation{"onorm_weight_long", "onorm_weight", "must have shape [128]",
                  with_size("onorm_weight", 0, 127)},
        Violation{"no_heads", "beta", "must have at least one head", with_size("beta", 1, 0)},
        Violation{"out_narrow", "out", "must have shape [B, H*128]", with_size("out", 1, 128)},
        Violation{"mixed_strided", "mixed_qkv", "must have unit stride along its last axis",
                  with_stride("mixed_qkv", 1, 2)},
        Violation{"out_rows_overlap", "out", "no two of its elements may share",
                  with_stride("out", 0, 100)},
        Violation{"state_not_dense", "state", "must be dense from axis 1 on",
                  with_stride("state", 2, 129)},
        Violation{"slots_overlap", "state", "no two of its elements may share",
                  with_stride("state", 0, 16384)},
        Violation{"taps_overlap", "conv_states", "no two of its elements may share",
                  with_stride("conv_states", 1, 700)},
        Violation{"negative_stride", "g", "must have no negative stride",
                  with_stride("g", 0, -256)},
        Violation{"state_not_an_element", "state", "must be aligned to its 4-byte element",
                  shifted("state", 2)},
        Violation{"null_state", "state", "must have a pointer", null_data("state")},
        Violation{"out_is_g", "out", "must not overlap g", aliasing("out", "g")},
        Violation{"out_is_gate", "out", "must not overlap onorm_gate",
                  aliasing("out", "onorm_gate")},
        Violation{"conv_is_mixed", "conv_states", "must not overlap mixed_qkv",
                  aliasing("mixed_qkv", "conv_states")},
        Violation{"state_on_conv_states", "conv_states", "must not overlap state",
                  sharing_memory("state", "conv_states")},
        Violation{"out_on_state", "state", "must not overlap out", sharing_memory("out", "state")},
        Violation{"dt_bias_2d_and_short", "dt_bias", "must have shape [H, 128]",
                  [](Call& c) {
                    with_rank("dt_bias", 2)(c);
                    with_size("dt_bias", 1, 127)(c);
                  }},
        Violation{"weight_without_gate", "onorm_weight", "must be given exactly when onorm_gate is",
                  absent("onorm_gate")},
        Violation{"gate_without_weight", "onorm_weight", "must be given exactly when onorm_gate is",
                  absent("onorm_weight")},
        Violation{"mixed_devices", "state", "must be on cpu like the other tensors",
                  on_cuda("state")},
        Violation{"index_past_the_pool", "state_indices",
                  "must be at most -1 (none) or a slot below 5", with_index(0, 5)},
        Violation{"index_far_past", "state_indices", "must be at most -1 (none) or a slot below 5",
                  with_index(2, 2147483647)},
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
        Violation{"null_index_fraction", "null_index", "must be an integer of 32 bits",
                  with_scalar("null_index", "0.5")},
        Violation{"null_index_past_int", "null_index", "must be an integer of 32 bits",
                  with_scalar("null_index", "2147483648")},
        Violation{"scalar_not_a_number", "scale", "must be a number",
                  with_scalar("scale", "twelve")},
        Violation{"no_gate_parameters", "A_log", "must be given where lower_bound is absent",
                  [](Call& c) {
                    c.tensors.erase("A_log");
                    c.scalars["lower_bound"] = "";
                  }}),
    violation_name);

TEST(KdaFusedDecodeScalars, AValueOutsideItsEnumIsRefused) {
  Bundle bundle = valid_bundle();
  KdaFusedDecodeArgs args;
  set_tensors(kda_fused_decode_args(), host_call(*find_driver("kda_fused_decode"), bundle), args);
  args.lower_bound = -5.0F;
  args.round_conv = static_cast<Rounding>(2);
  expect_refused([&] { kda_fused_decode(args); }, "round_conv", "must be one of its enumerators");
  args.round_conv = Rounding::kBF16;
  args.round_o = static_cast<Rounding>(-1);
  expect_refused([&] { kda_fused_decode(args); }, "round_o", "must be one of its enumerators");
}

TEST(KdaFusedDecodeDebugChecks, TwoRequestsWithOneSlotAreRefused) {
  Bundle bundle = valid_bundle();
  bundle.tensors["state_indices"] = integers(DType::kI32, {4, -1, 4});
  const Driver& driver = *find_driver("kda_fused_decode");
  EXPECT_NO_THROW(driver.run(host_call(driver, bundle), {}));
  const Environment checks("K3_DEBUG_CHECKS", "1");
  expect_refused([&] { driver.run(host_call(driver, bundle), {}); }, "state_indices",
                 "must give every live request a slot of its own");
}

INSTANTIATE_TEST_SUITE_P(EveryTensor, KdaFusedDecodeContract,
                         testing::ValuesIn(rules_of_every_tensor(*find_driver("kda_fused_decode"),
                                                                 valid_bundle())),
                         violation_name);

}  // namespace
}  // namespace k3::harness
