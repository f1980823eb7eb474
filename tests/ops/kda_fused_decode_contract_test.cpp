// SPDX-License-Identifier: Apache-2.0
#include "harness/inputs.h"
#include "tests/ops/contract_table.h"

namespace k3::harness {
namespace {

Bundle valid_bundle() {
  Random random(1);
  Bundle b;
  b.tensors["mixed_qkv"] = normal(random, DType::kBF16, {3, 768});
  b.tensors["conv_states"] = normal(random, DType::kBF16, {5, 3, 768});
  b.tensors["conv_weight"] = normal(random, DType::kF32, {4, 768});
  b.tensors["conv_bias"] = normal(random, DType::kF32, {768});
  b.tensors["g"] = normal(random, DType::kBF16, {3, 256});
  b.tensors["beta"] = normal(random, DType::kBF16, {3, 2});
  b.tensors["A_log"] = normal(random, DType::kF32, {2});
  b.tensors["dt_bias"] = normal(random, DType::kF32, {256});
  b.tensors["onorm_gate"] = normal(random, DType::kBF16, {3, 256});
  b.tensors["onorm_weight"] = normal(random, DType::kF32, {128});
  b.tensors["state"] = normal(random, DType::kF32, {5, 2, 128, 128});
  b.tensors["state_indices"] = integers(DType::kI32, {4, -1, 0});
  b.tensors["out"] = poisoned(DType::kBF16, {3, 256});
  b.scalars = {{"lower_bound", "-5"}};
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
        Violation{"mixed_absent", "mixed_qkv", absent("mixed_qkv")},
        Violation{"state_absent", "state", absent("state")},
        Violation{"out_absent", "out", absent("out")},
        Violation{"indices_absent", "state_indices", absent("state_indices")},
        Violation{"mixed_f32", "mixed_qkv", with_dtype("mixed_qkv", DType::kF32)},
        Violation{"weight_bf16", "conv_weight", with_dtype("conv_weight", DType::kBF16)},
        Violation{"state_f16", "state", with_dtype("state", DType::kF16)},
        Violation{"indices_i64", "state_indices", with_dtype("state_indices", DType::kI64)},
        Violation{"indices_rank_2", "state_indices", with_rank("state_indices", 2)},
        Violation{"state_rank_3", "state", with_rank("state", 3)},
        Violation{"mixed_narrow", "mixed_qkv", with_size("mixed_qkv", 1, 767)},
        Violation{"g_other_batch", "g", with_size("g", 0, 2)},
        Violation{"conv_two_taps", "conv_states", with_size("conv_states", 1, 2)},
        Violation{"conv_other_slots", "conv_states", with_size("conv_states", 0, 4)},
        Violation{"weight_three_taps", "conv_weight", with_size("conv_weight", 0, 3)},
        Violation{"bias_narrow", "conv_bias", with_size("conv_bias", 0, 256)},
        Violation{"a_log_padded", "A_log", with_size("A_log", 0, 1)},
        Violation{"dt_bias_narrow", "dt_bias", with_size("dt_bias", 0, 128)},
        Violation{"state_head_dim", "state", with_size("state", 3, 64)},
        Violation{"onorm_weight_long", "onorm_weight", with_size("onorm_weight", 0, 127)},
        Violation{"no_heads", "beta", with_size("beta", 1, 0)},
        Violation{"out_narrow", "out", with_size("out", 1, 128)},
        Violation{"mixed_strided", "mixed_qkv", with_stride("mixed_qkv", 1, 2)},
        Violation{"out_rows_overlap", "out", with_stride("out", 0, 100)},
        Violation{"state_not_dense", "state", with_stride("state", 2, 129)},
        Violation{"slots_overlap", "state", with_stride("state", 0, 16384)},
        Violation{"taps_overlap", "conv_states", with_stride("conv_states", 1, 700)},
        Violation{"negative_stride", "g", with_stride("g", 0, -256)},
        Violation{"state_not_an_element", "state", shifted("state", 2)},
        Violation{"null_state", "state", null_data("state")},
        Violation{"out_is_g", "out", aliasing("out", "g")},
        Violation{"out_is_gate", "out", aliasing("out", "onorm_gate")},
        Violation{"conv_is_mixed", "conv_states", aliasing("mixed_qkv", "conv_states")},
        Violation{"weight_without_gate", "onorm_weight", absent("onorm_gate")},
        Violation{"gate_without_weight", "onorm_weight", absent("onorm_weight")},
        Violation{"mixed_devices", "state", on_cuda("state")},
        Violation{"index_past_the_pool", "state_indices", with_index(0, 5)},
        Violation{"index_far_past", "state_indices", with_index(2, 2147483647)},
        Violation{"index_below_0_above_null", "state_indices",
                  [](Call& c) {
                    c.scalars["null_index"] = "-3";
                    with_index(1, -2)(c);
                  }},
        Violation{"scale_inf", "scale", with_scalar("scale", "-inf")},
        Violation{"lower_bound_0", "lower_bound", with_scalar("lower_bound", "0")},
        Violation{"eps_negative", "eps_o", with_scalar("eps_o", "-1e-5")},
        Violation{"eps_nan", "eps_o", with_scalar("eps_o", "nan")},
        Violation{"round_conv_unknown", "round_conv", with_scalar("round_conv", "fp8")},
        Violation{"scalar_not_a_number", "scale", with_scalar("scale", "twelve")},
        Violation{"no_gate_parameters", "A_log",
                  [](Call& c) {
                    c.tensors.erase("A_log");
                    c.scalars["lower_bound"] = "";
                  }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace k3::harness
