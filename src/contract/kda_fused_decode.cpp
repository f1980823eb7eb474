// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_fused_decode.h"

#include <fmt/format.h>

#include <cmath>

#include "contract/checks.h"

namespace k3 {
namespace {

constexpr std::int64_t kD = kKdaHeadDim;

void check_shapes(const Contract& contract, const KdaFusedDecodeArgs& a, std::int64_t B,
                  std::int64_t H) {
  const std::int64_t segment = H * kD;
  const std::int64_t slots = a.state.shape[0];
  contract.shape("mixed_qkv", a.mixed_qkv, {{"B", B}, {"3*H*128", 3 * segment}});
  contract.shape("conv_states", a.conv_states,
                 {{"slots", slots}, {"3", kKdaConvWidth - 1}, {"3*H*128", 3 * segment}});
  contract.shape("conv_weight", a.conv_weight, {{"4", kKdaConvWidth}, {"3*H*128", 3 * segment}});
  contract.shape("conv_bias", a.conv_bias, {{"3*H*128", 3 * segment}});
  contract.shape("g", a.g, {{"B", B}, {"H*128", segment}});
  contract.shape("A_log", a.A_log, {{"H", H}});
  if (a.dt_bias.rank == 2)
    contract.shape("dt_bias", a.dt_bias, {{"H", H}, {"128", kD}});
  else
    contract.shape("dt_bias", a.dt_bias, {{"H*128", segment}});
  contract.shape("onorm_gate", a.onorm_gate, {{"B", B}, {"H*128", segment}});
  contract.shape("onorm_weight", a.onorm_weight, {{"128", kD}});
  contract.shape("state", a.state, {{"slots", slots}, {"H", H}, {"128", kD}, {"128", kD}});
  contract.shape("state_indices", a.state_indices, {{"B", B}});
  contract.shape("out", a.out, {{"B", B}, {"H*128", segment}});
}

void check_layouts(const Contract& contract, const KdaFusedDecodeArgs& a) {
  contract.unit_last_stride("mixed_qkv", a.mixed_qkv);
  contract.unit_last_stride("conv_states", a.conv_states);
  contract.unit_last_stride("conv_weight", a.conv_weight);
  contract.unit_last_stride("conv_bias", a.conv_bias);
  contract.unit_last_stride("g", a.g);
  contract.unit_last_stride("beta", a.beta);
  contract.unit_last_stride("A_log", a.A_log);
  contract.dense_from("dt_bias", a.dt_bias, 0);
  contract.unit_last_stride("onorm_gate", a.onorm_gate);
  contract.unit_last_stride("onorm_weight", a.onorm_weight);
  contract.dense_from("state", a.state, 1);
  contract.unit_last_stride("out", a.out);
}

void check_scalars(const Contract& contract, const KdaFusedDecodeArgs& a) {
  if (a.scale) contract.finite("scale", *a.scale);
  contract.negative("lower_bound", a.lower_bound ? &*a.lower_bound : nullptr);
  contract.require(std::isfinite(a.eps_o) && a.eps_o >= 0.0F, "eps_o",
                   "must be finite and at least 0", [&] { return fmt::format("{}", a.eps_o); });
  contract.require(a.A_log.defined() || a.lower_bound.has_value(), "A_log",
                   "must be given where lower_bound is absent", a.A_log);
  contract.require(a.onorm_weight.defined() == a.onorm_gate.defined(), "onorm_weight",
                   "must be given exactly when onorm_gate is", a.onorm_weight);
  contract.one_of("round_conv", a.round_conv, {Rounding::kF32, Rounding::kBF16});
  contract.one_of("round_o", a.round_o, {Rounding::kF32, Rounding::kBF16});
  contract.require(a.null_index >= -1, "null_index", "must be at least -1",
                   [&] { return std::to_string(a.null_index); });
}

}  // namespace

std::span<const ArgRule<KdaFusedDecodeArgs>> kda_fused_decode_args() {
  using Args = KdaFusedDecodeArgs;
  constexpr DTypeSet kBF16 = {DType::kBF16};
  constexpr DTypeSet kF32 = {DType::kF32};
  constexpr auto kRead = Access::kRead;
  static const ArgRule<Args> rules[] = {
      {"mixed_qkv", kRead, false, kBF16, {2}, &Args::mixed_qkv},
      {"conv_states", Access::kReadWrite, false, kBF16, {3}, &Args::conv_states},
      {"conv_weight", kRead, false, kF32, {2}, &Args::conv_weight},
      {"conv_bias", kRead, true, kF32, {1}, &Args::conv_bias},
      {"g", kRead, false, kBF16, {2}, &Args::g},
      {"beta", kRead, false, kBF16, {2}, &Args::beta},
      {"A_log", kRead, true, kF32, {1}, &Args::A_log},
      {"dt_bias", kRead, true, kF32, {1, 2}, &Args::dt_bias},
      {"onorm_gate", kRead, true, kBF16, {2}, &Args::onorm_gate},
      {"onorm_weight", kRead, true, kF32, {1}, &Args::onorm_weight},
      {"state", Access::kReadWrite, false, {DType::kF32, DType::kBF16}, {4}, &Args::state},
      {"state_indices", kRead, false, {DType::kI32}, {1}, &Args::state_indices},
      {"out", Access::kWrite, false, kBF16, {2}, &Args::out},
  };
  return rules;
}

void check_values(const Contract& contract, const KdaFusedDecodeProblem& p, ValueChecks checks) {
  check_indices(contract, "state_indices", p.state_indices, p.null_index, p.num_slots, "slot",
                checks);
}

KdaFusedDecodeProblem check(const KdaFusedDecodeArgs& a, Purpose purpose) {
  const Contract contract("kda_fused_decode", purpose);
  contract.tensors(kda_fused_decode_args(), a);
  KdaFusedDecodeProblem p;
  p.B = contract.small("beta", "B", a.beta.shape[0]);
  p.H = contract.small("beta", "H", a.beta.shape[1]);
  const std::int64_t B = p.B;
  const std::int64_t H = p.H;
  contract.require(H >= 1, "beta", "must have at least one head", a.beta);
  contract.small("mixed_qkv", "3*H*128", 3 * H * kD);
  check_shapes(contract, a, B, H);
  check_layouts(contract, a);
  contract.overlaps(kda_fused_decode_args(), a);
  check_scalars(contract, a);

  p.num_slots = a.state.shape[0];
  p.mixed_qkv = static_cast<const bf16*>(a.mixed_qkv.data);
  p.mixed_qkv_stride = a.mixed_qkv.strides[0];
  p.conv_states = static_cast<bf16*>(a.conv_states.data);
  p.conv_slot_stride = a.conv_states.strides[0];
  p.conv_tap_stride = a.conv_states.strides[1];
  p.conv_weight = static_cast<const float*>(a.conv_weight.data);
  p.conv_weight_stride = a.conv_weight.strides[0];
  p.conv_bias = static_cast<const float*>(a.conv_bias.data);
  p.g = static_cast<const bf16*>(a.g.data);
  p.g_stride = a.g.strides[0];
  p.beta = static_cast<const bf16*>(a.beta.data);
  p.beta_stride = a.beta.strides[0];
  p.A_log = static_cast<const float*>(a.A_log.data);
  p.dt_bias = static_cast<const float*>(a.dt_bias.data);
  p.onorm_gate = static_cast<const bf16*>(a.onorm_gate.data);
  p.onorm_gate_stride = a.onorm_gate.strides[0];
  p.onorm_weight = static_cast<const float*>(a.onorm_weight.data);
  p.state = a.state.data;
  p.state_dtype = a.state.dtype;
  p.state_slot_stride = a.state.strides[0];
  p.state_indices = IndexList(a.state_indices);
  p.out = static_cast<bf16*>(a.out.data);
  p.out_stride = a.out.strides[0];
  p.scale = a.scale.value_or(1.0F / std::sqrt(static_cast<float>(kD)));
  p.has_lower_bound = a.lower_bound.has_value();
  p.lower_bound = a.lower_bound.value_or(0.0F);
  p.eps_o = a.eps_o;
  p.round_conv = a.round_conv;
  p.round_o = a.round_o;
  p.null_index = a.null_index;
  p.device = a.mixed_qkv.device;
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
