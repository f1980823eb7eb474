// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_output_norm.h"

#include <fmt/format.h>

#include <cmath>

#include "contract/kda.h"
#include "contract/rows.h"

namespace k3 {
namespace {

constexpr std::int64_t kD = kKdaHeadDim;

}  // namespace

std::span<const ArgRule<KdaOutputNormArgs>> kda_output_norm_args() {
  using Args = KdaOutputNormArgs;
  constexpr DTypeSet kBF16 = {DType::kBF16};
  static const ArgRule<Args> rules[] = {
      {"raw", Access::kRead, false, kBF16, {2}, &Args::raw},
      {"gate", Access::kRead, false, kBF16, {2}, &Args::gate},
      {"weight", Access::kRead, false, {DType::kF32}, {1}, &Args::weight},
      {"out", Access::kWrite, false, kBF16, {2}, &Args::out},
  };
  return rules;
}

KdaOutputNormProblem check(const KdaOutputNormArgs& a, Purpose purpose) {
  const Contract contract("kda_output_norm", purpose);
  const auto rules = kda_output_norm_args();
  contract.tensors(rules, a);
  KdaOutputNormProblem p;
  p.T = contract.small("raw", "T", a.raw.shape[0]);
  contract.small("raw", "H*128", a.raw.shape[1]);
  p.H = static_cast<int>(a.raw.shape[1] / kD);
  contract.require(p.H >= 1 && a.raw.shape[1] % kD == 0, "raw", "must have H*128 columns, H >= 1",
                   a.raw);
  const std::int64_t columns = a.raw.shape[1];
  contract.shape("gate", a.gate, {{"T", p.T}, {"H*128", columns}});
  contract.shape("weight", a.weight, {{"128", kD}});
  contract.shape("out", a.out, {{"T", p.T}, {"H*128", columns}});
  contract.unit_last_stride("raw", a.raw);
  contract.unit_last_stride("gate", a.gate);
  contract.unit_last_stride("weight", a.weight);
  contract.unit_last_stride("out", a.out);
  if (same_memory(a.raw, a.out))
    contract.overlaps(rules, a, {rules[3].name, rules[0].name});
  else
    contract.overlaps(rules, a);
  contract.require(std::isfinite(a.eps) && a.eps >= 0.0F, "eps", "must be finite and at least 0",
                   [&] { return fmt::format("{}", a.eps); });

  p.raw = static_cast<const bf16*>(a.raw.data);
  p.raw_stride = a.raw.strides[0];
  p.gate = static_cast<const bf16*>(a.gate.data);
  p.gate_stride = a.gate.strides[0];
  p.weight = static_cast<const float*>(a.weight.data);
  p.out = static_cast<bf16*>(a.out.data);
  p.out_stride = a.out.strides[0];
  p.eps = a.eps;
  p.device = a.raw.device;
  return p;
}

}  // namespace k3
