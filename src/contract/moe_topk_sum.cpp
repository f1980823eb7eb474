// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_topk_sum.h"

namespace k3 {

std::span<const ArgRule<MoeTopkSumArgs>> moe_topk_sum_args() {
  using Args = MoeTopkSumArgs;
  static const ArgRule<Args> rules[] = {
      {"input", Access::kRead, false, {DType::kBF16}, {3}, &Args::input},
      {"out", Access::kWrite, false, {DType::kBF16}, {2}, &Args::out},
  };
  return rules;
}

MoeTopkSumProblem check(const MoeTopkSumArgs& a, Purpose purpose) {
  const Contract contract("moe_topk_sum", purpose);
  contract.tensors(moe_topk_sum_args(), a);
  MoeTopkSumProblem p;
  p.T = a.input.shape[0];
  p.topk = contract.small("input", "topk", a.input.shape[1]);
  p.H = contract.small("input", "H", a.input.shape[2]);
  contract.shape("out", a.out, {{"T", p.T}, {"H", p.H}});
  contract.unit_last_stride("input", a.input);
  contract.unit_last_stride("out", a.out);
  contract.overlaps(moe_topk_sum_args(), a);

  p.input = static_cast<const bf16*>(a.input.data);
  p.token_stride = a.input.strides[0];
  p.slot_stride = a.input.strides[1];
  p.out = static_cast<bf16*>(a.out.data);
  p.out_stride = a.out.strides[0];
  p.device = a.input.device;
  return p;
}

}  // namespace k3
