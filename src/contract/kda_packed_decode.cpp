// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_packed_decode.h"

#include <cmath>

namespace k3 {
namespace {

constexpr std::int64_t kD = kKdaHeadDim;

/// H of (2 H + HV) * 128 columns.
int key_heads(const Contract& contract, const ConstTensorView& mixed_qkv, std::int64_t HV) {
  const std::int64_t columns = mixed_qkv.shape[1];
  const std::int64_t H = (columns / kD - HV) / 2;
  contract.require(H >= 1 && columns == (2 * H + HV) * kD && HV % H == 0, "mixed_qkv",
                   "must have (2*H + HV)*128 columns for an H that divides HV", mixed_qkv);
  return static_cast<int>(H);
}

void check_shapes(const Contract& contract, const KdaPackedDecodeArgs& a, std::int64_t B,
                  std::int64_t HV) {
  contract.shape("mixed_qkv", a.mixed_qkv, {{"B", B}, {"(2*H + HV)*128", a.mixed_qkv.shape[1]}});
  contract.shape("g", a.g, {{"B", B}, {"HV*128", HV * kD}});
  contract.shape("A_log", a.A_log, {{"HV", HV}});
  if (a.dt_bias.rank == 2)
    contract.shape("dt_bias", a.dt_bias, {{"HV", HV}, {"128", kD}});
  else
    contract.shape("dt_bias", a.dt_bias, {{"HV*128", HV * kD}});
  contract.shape("state", a.state,
                 {{"slots", a.state.shape[0]}, {"HV", HV}, {"128", kD}, {"128", kD}});
  contract.shape("state_indices", a.state_indices, {{"B", B}});
  contract.shape("out", a.out, {{"B", B}, {"HV*128", HV * kD}});
}

void check_layouts(const Contract& contract, const KdaPackedDecodeArgs& a) {
  contract.unit_last_stride("mixed_qkv", a.mixed_qkv);
  contract.unit_last_stride("g", a.g);
  contract.unit_last_stride("beta", a.beta);
  contract.unit_last_stride("A_log", a.A_log);
  contract.dense_from("dt_bias", a.dt_bias, 0);
  contract.dense_from("state", a.state, 1);
  contract.unit_last_stride("out", a.out);
}

void check_scalars(const Contract& contract, const KdaPackedDecodeArgs& a) {
  if (a.scale) contract.finite("scale", *a.scale);
  contract.negative("lower_bound", a.lower_bound ? &*a.lower_bound : nullptr);
  contract.require(a.A_log.defined() || a.lower_bound.has_value(), "A_log",
                   "must be given where lower_bound is absent", a.A_log);
  contract.require(a.null_index >= -1, "null_index", "must be at least -1",
                   [&] { return std::to_string(a.null_index); });
}

}  // namespace

std::span<const ArgRule<KdaPackedDecodeArgs>> kda_packed_decode_args() {
  using Args = KdaPackedDecodeArgs;
  constexpr DTypeSet kBF16 = {DType::kBF16};
  constexpr DTypeSet kF32 = {DType::kF32};
  constexpr auto kRead = Access::kRead;
  static const ArgRule<Args> rules[] = {
      {"mixed_qkv", kRead, false, kBF16, {2}, &Args::mixed_qkv},
      {"g", kRead, false, kBF16, {2}, &Args::g},
      {"beta", kRead, false, kBF16, {2}, &Args::beta},
      {"A_log", kRead, true, kF32, {1}, &Args::A_log},
      {"dt_bias", kRead, true, kF32, {1, 2}, &Args::dt_bias},
      {"state", Access::kReadWrite, false, {DType::kF32, DType::kBF16}, {4}, &Args::state},
      {"state_indices", kRead, false, {DType::kI32}, {1}, &Args::state_indices},
      {"out", Access::kWrite, false, kBF16, {2}, &Args::out},
  };
  return rules;
}

void check_values(const Contract& contract, const KdaPackedDecodeProblem& p, ValueChecks checks) {
  check_indices(contract, "state_indices", p.state_indices, p.null_index, p.num_slots, "slot",
                checks);
}

KdaPackedDecodeProblem check(const KdaPackedDecodeArgs& a, Purpose purpose) {
  const Contract contract("kda_packed_decode", purpose);
  contract.tensors(kda_packed_decode_args(), a);
  KdaPackedDecodeProblem p;
  p.B = contract.small("beta", "B", a.beta.shape[0]);
  p.HV = contract.small("beta", "HV", a.beta.shape[1]);
  contract.require(p.HV >= 1, "beta", "must have at least one head", a.beta);
  contract.small("mixed_qkv", "(2*H + HV)*128", a.mixed_qkv.shape[1]);
  p.H = key_heads(contract, a.mixed_qkv, p.HV);
  check_shapes(contract, a, p.B, p.HV);
  check_layouts(contract, a);
  contract.overlaps(kda_packed_decode_args(), a);
  check_scalars(contract, a);

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
  p.scale = a.scale.value_or(1.0F / std::sqrt(static_cast<float>(kD)));
  p.has_lower_bound = a.lower_bound.has_value();
  p.lower_bound = a.lower_bound.value_or(0.0F);
  p.null_index = a.null_index;
  p.device = a.mixed_qkv.device;
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
