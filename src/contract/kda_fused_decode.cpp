// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_fused_decode.h"

#include "contract/checks.h"
#include "contract/kda_decode.h"

namespace k3 {

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
  contract.require(p.H >= 1, "beta", "must have at least one head", a.beta);
  const std::int64_t channels = std::int64_t{p.H} * kKdaHeadDim;
  contract.small("mixed_qkv", "3*H*128", 3 * channels);
  const KdaDecodeSizes sizes = {{"B", p.B}, {"H", p.H}, {"H*128", channels}};
  check_conv_and_norm_shapes(contract, a, sizes);
  check_recurrence_shapes(contract, a, sizes);
  contract.shape("state_indices", a.state_indices, {{"B", p.B}});
  check_recurrence_layouts(contract, a);
  check_conv_and_norm_layouts(contract, a);
  contract.overlaps(kda_fused_decode_args(), a);
  check_recurrence_scalars(contract, a);
  check_conv_and_norm_scalars(contract, a);
  set_recurrence(a, p);
  set_conv_and_norm(a, p);
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
