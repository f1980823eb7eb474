// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "contract/checks.h"
#include "contract/kda.h"
#include "core/bf16.h"

/// What the contracts of the ops that take tokens one by one have in common. Their Args and
/// Problems name the same things alike; each function works on every op that has them.
namespace k3 {

/// Sizes as an op's error texts name them.
struct KdaDecodeSizes {
  Axis rows;      ///< of the tensors with one row a token
  Axis heads;     ///< of the state
  Axis channels;  ///< heads * 128
};

/// The recurrence: fused and packed decode, verify. mixed_qkv and the index lists are the op's own.
template <class Args>
void check_recurrence_shapes(const Contract& contract, const Args& a, const KdaDecodeSizes& s) {
  const Axis dim = {"128", kKdaHeadDim};
  contract.shape("g", a.g, {s.rows, s.channels});
  contract.shape("A_log", a.A_log, {s.heads});
  if (a.dt_bias.rank == 2)
    contract.shape("dt_bias", a.dt_bias, {s.heads, dim});
  else
    contract.shape("dt_bias", a.dt_bias, {s.channels});
  contract.shape("state", a.state, {{"slots", a.state.shape[0]}, s.heads, dim, dim});
  contract.shape("out", a.out, {s.rows, s.channels});
}

template <class Args>
void check_recurrence_layouts(const Contract& contract, const Args& a) {
  contract.unit_last_stride("mixed_qkv", a.mixed_qkv);
  contract.unit_last_stride("g", a.g);
  contract.unit_last_stride("beta", a.beta);
  contract.unit_last_stride("A_log", a.A_log);
  contract.dense_from("dt_bias", a.dt_bias, 0);
  contract.dense_from("state", a.state, 1);
  contract.unit_last_stride("out", a.out);
}

template <class Args>
void check_recurrence_scalars(const Contract& contract, const Args& a) {
  if (a.scale) contract.finite("scale", *a.scale);
  contract.negative("lower_bound", a.lower_bound ? &*a.lower_bound : nullptr);
  contract.require(a.A_log.defined() || a.lower_bound.has_value(), "A_log",
                   "must be given where lower_bound is absent", a.A_log);
  contract.require(a.null_index >= -1, "null_index", "must be at least -1",
                   [&] { return std::to_string(a.null_index); });
}

template <class Args, class Problem>
void set_recurrence(const Args& a, Problem& p) {
  p.num_slots = a.state.shape[0];
  p.mixed_qkv = static_cast<const bf16*>(a.mixed_qkv.data);
  p.mixed_qkv_stride = a.mixed_qkv.strides[0];
  p.g = static_cast<const bf16*>(a.g.data);
  p.g_stride = a.g.strides[0];
  p.beta = static_cast<const bf16*>(a.beta.data);
  p.beta_stride = a.beta.strides[0];
  p.A_log = static_cast<const float*>(a.A_log.data);
  p.dt_bias = static_cast<const float*>(a.dt_bias.data);
  p.state = a.state.data;
  p.state_dtype = a.state.dtype;
  p.state_slot_stride = a.state.strides[0];
  p.state_indices = IndexList(a.state_indices);
  p.out = static_cast<bf16*>(a.out.data);
  p.out_stride = a.out.strides[0];
  p.scale = a.scale.value_or(1.0F / std::sqrt(static_cast<float>(kKdaHeadDim)));
  p.has_lower_bound = a.lower_bound.has_value();
  p.lower_bound = a.lower_bound.value_or(0.0F);
  p.null_index = a.null_index;
  p.device = a.mixed_qkv.device;
}

/// Convolution and output norm around it: fused decode and verify.
template <class Args>
void check_conv_and_norm_shapes(const Contract& contract, const Args& a, const KdaDecodeSizes& s) {
  const Axis qkv = {"3*H*128", 3 * s.channels.size};
  contract.shape("mixed_qkv", a.mixed_qkv, {s.rows, qkv});
  contract.shape("conv_states", a.conv_states,
                 {{"slots", a.state.shape[0]}, {"3", kKdaConvWidth - 1}, qkv});
  contract.shape("conv_weight", a.conv_weight, {{"4", kKdaConvWidth}, qkv});
  contract.shape("conv_bias", a.conv_bias, {qkv});
  contract.shape("onorm_gate", a.onorm_gate, {s.rows, s.channels});
  contract.shape("onorm_weight", a.onorm_weight, {{"128", kKdaHeadDim}});
}

template <class Args>
void check_conv_and_norm_layouts(const Contract& contract, const Args& a) {
  contract.unit_last_stride("conv_states", a.conv_states);
  contract.unit_last_stride("conv_weight", a.conv_weight);
  contract.unit_last_stride("conv_bias", a.conv_bias);
  contract.unit_last_stride("onorm_gate", a.onorm_gate);
  contract.unit_last_stride("onorm_weight", a.onorm_weight);
}

template <class Args>
void check_conv_and_norm_scalars(const Contract& contract, const Args& a) {
  contract.require(std::isfinite(a.eps_o) && a.eps_o >= 0.0F, "eps_o",
                   "must be finite and at least 0", [&] { return fmt::format("{}", a.eps_o); });
  contract.require(a.onorm_weight.defined() == a.onorm_gate.defined(), "onorm_weight",
                   "must be given exactly when onorm_gate is", a.onorm_weight);
  contract.one_of("round_conv", a.round_conv, {Rounding::kF32, Rounding::kBF16});
  contract.one_of("round_o", a.round_o, {Rounding::kF32, Rounding::kBF16});
}

template <class Args, class Problem>
void set_conv_and_norm(const Args& a, Problem& p) {
  p.conv_states = static_cast<decltype(p.conv_states)>(a.conv_states.data);
  p.conv_slot_stride = a.conv_states.strides[0];
  p.conv_tap_stride = a.conv_states.strides[1];
  p.conv_weight = static_cast<const float*>(a.conv_weight.data);
  p.conv_weight_stride = a.conv_weight.strides[0];
  p.conv_bias = static_cast<const float*>(a.conv_bias.data);
  p.onorm_gate = static_cast<const bf16*>(a.onorm_gate.data);
  p.onorm_gate_stride = a.onorm_gate.strides[0];
  p.onorm_weight = static_cast<const float*>(a.onorm_weight.data);
  p.eps_o = a.eps_o;
  p.round_conv = a.round_conv;
  p.round_o = a.round_o;
}

}  // namespace k3
