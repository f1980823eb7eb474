// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_packed_decode.h"

#include "contract/kda_decode.h"

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
  const KdaDecodeSizes sizes = {
      {"B", p.B}, {"HV", p.HV}, {"HV*128", std::int64_t{p.HV} * kKdaHeadDim}};
  contract.shape("mixed_qkv", a.mixed_qkv, {sizes.rows, {"(2*H + HV)*128", a.mixed_qkv.shape[1]}});
  check_recurrence_shapes(contract, a, sizes);
  contract.shape("state_indices", a.state_indices, {sizes.rows});
  check_recurrence_layouts(contract, a);
  contract.overlaps(kda_packed_decode_args(), a);
  check_recurrence_scalars(contract, a);
  set_recurrence(a, p);
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
