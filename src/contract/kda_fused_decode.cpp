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
  contract.no_self_overlap("conv_states", a.conv_states);
  contract.no_self_overlap("state", a.state);
  contract.no_self_overlap("out", a.out);
  no_overlaps(contract, {{"out", a.out}, {"state", a.state}, {"conv_states", a.conv_states}},
              {{"mixed_qkv", a.mixed_qkv},
               {"conv_weight", a.conv_weight},
               {"conv_bias", a.conv_bias},
               {"g", a.g},
               {"beta", a.beta},
               {"A_log", a.A_log},
               {"dt_bias", a.dt_bias},
               {"onorm_gate", a.onorm_gate},
               {"onorm_weight", a.onorm_weight},
               {"state_indices", a.state_indices}});
}

void check_scalars(const Contract& contract, const KdaFusedDecodeArgs& a) {
  if (a.scale) contract.finite("scale", *a.scale);
  contract.negative("lower_bound", a.lower_bound ? &*a.lower_bound : nullptr);
  contract.require(std::isfinite(a.eps_o) && a.eps_o >= 0.0F, "eps_o",
                   "must be finite and at least 0", std::to_string(a.eps_o));
  contract.require(a.A_log.defined() || a.lower_bound.has_value(), "A_log",
                   "must be given where lower_bound is absent", "an absent tensor");
  contract.require(a.onorm_weight.defined() == a.onorm_gate.defined(), "onorm_weight",
                   "must be given exactly when onorm_gate is", describe(a.onorm_weight));
}

void check_indices(const Contract& contract, const KdaFusedDecodeProblem& p) {
  for (int n = 0; n < p.B; ++n) {
    const std::int32_t slot = p.state_indices[n * p.state_indices_stride];
    if (slot > p.null_index && (slot < 0 || slot >= p.num_slots))
      contract.fail("state_indices",
                    fmt::format("must be at most null_index = {} or a slot in [0, {})",
                                p.null_index, p.num_slots),
                    fmt::format("state_indices[{}] = {}", n, slot));
  }
}

}  // namespace

KdaFusedDecodeProblem check(const KdaFusedDecodeArgs& a) {
  const Contract contract("kda_fused_decode");
  const auto bf16_only = {DType::kBF16};
  const auto f32_only = {DType::kF32};
  contract.present("mixed_qkv", a.mixed_qkv);
  contract.present("conv_states", a.conv_states);
  contract.present("conv_weight", a.conv_weight);
  contract.present("g", a.g);
  contract.present("beta", a.beta);
  contract.present("state", a.state);
  contract.present("state_indices", a.state_indices);
  contract.present("out", a.out);
  contract.tensor("mixed_qkv", a.mixed_qkv, bf16_only, {2});
  contract.tensor("conv_states", a.conv_states, bf16_only, {3});
  contract.tensor("conv_weight", a.conv_weight, f32_only, {2});
  contract.tensor("conv_bias", a.conv_bias, f32_only, {1});
  contract.tensor("g", a.g, bf16_only, {2});
  contract.tensor("beta", a.beta, bf16_only, {2});
  contract.tensor("A_log", a.A_log, f32_only, {1});
  contract.tensor("dt_bias", a.dt_bias, f32_only, {1, 2});
  contract.tensor("onorm_gate", a.onorm_gate, bf16_only, {2});
  contract.tensor("onorm_weight", a.onorm_weight, f32_only, {1});
  contract.tensor("state", a.state, {DType::kF32, DType::kBF16}, {4});
  contract.tensor("state_indices", a.state_indices, {DType::kI32}, {1});
  contract.tensor("out", a.out, bf16_only, {2});

  const std::int64_t B = a.beta.shape[0];
  const std::int64_t H = a.beta.shape[1];
  contract.require(H >= 1, "beta", "must have at least one head", describe(a.beta));
  contract.small("mixed_qkv", "3*H*128", 3 * H * kD);
  const Device device = a.mixed_qkv.device;
  for (const NamedTensor& t : std::initializer_list<NamedTensor>{{"conv_states", a.conv_states},
                                                                 {"conv_weight", a.conv_weight},
                                                                 {"conv_bias", a.conv_bias},
                                                                 {"g", a.g},
                                                                 {"beta", a.beta},
                                                                 {"A_log", a.A_log},
                                                                 {"dt_bias", a.dt_bias},
                                                                 {"onorm_gate", a.onorm_gate},
                                                                 {"onorm_weight", a.onorm_weight},
                                                                 {"state", a.state},
                                                                 {"state_indices", a.state_indices},
                                                                 {"out", a.out}})
    contract.same_device(t.name, t.tensor, device);
  check_shapes(contract, a, B, H);
  check_layouts(contract, a);
  check_scalars(contract, a);

  KdaFusedDecodeProblem p;
  p.B = contract.small("mixed_qkv", "B", B);
  p.H = static_cast<int>(H);
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
  p.state_indices = static_cast<const std::int32_t*>(a.state_indices.data);
  p.state_indices_stride = a.state_indices.strides[0];
  p.out = static_cast<bf16*>(a.out.data);
  p.out_stride = a.out.strides[0];
  p.scale = a.scale.value_or(1.0F / std::sqrt(static_cast<float>(kD)));
  p.has_lower_bound = a.lower_bound.has_value();
  p.lower_bound = a.lower_bound.value_or(0.0F);
  p.eps_o = a.eps_o;
  p.round_conv = a.round_conv;
  p.round_o = a.round_o;
  p.null_index = a.null_index;
  p.device = device;
  if (device.kind == DeviceKind::kCpu) check_indices(contract, p);
  return p;
}

}  // namespace k3
