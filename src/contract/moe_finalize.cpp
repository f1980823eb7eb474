// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_finalize.h"

namespace k3 {

std::span<const ArgRule<MoeFinalizeArgs>> moe_finalize_args() {
  using Args = MoeFinalizeArgs;
  static const ArgRule<Args> rules[] = {
      {"experts_out", Access::kRead, false, {DType::kBF16}, {2}, &Args::experts_out},
      {"idx", Access::kRead, false, {DType::kI32}, {1, 2}, &Args::idx},
      {"topk_weights", Access::kRead, false, {DType::kBF16, DType::kF32}, {2}, &Args::topk_weights},
      {"out", Access::kWrite, false, {DType::kBF16}, {2}, &Args::out},
  };
  return rules;
}

void check_values(const Contract& contract, const MoeFinalizeProblem& p, ValueChecks) {
  // Rows are only read, so two slots may share one.
  check_indices(contract, "idx", p.idx, -1, p.num_rows, "row", ValueChecks::kRanges);
}

MoeFinalizeProblem check(const MoeFinalizeArgs& a, Purpose purpose) {
  const Contract contract("moe_finalize", purpose);
  contract.tensors(moe_finalize_args(), a);
  MoeFinalizeProblem p;
  p.num_rows = a.experts_out.shape[0];
  p.H = contract.small("experts_out", "H", a.experts_out.shape[1]);
  p.T = a.topk_weights.shape[0];
  p.topk = contract.small("topk_weights", "topk", a.topk_weights.shape[1]);
  if (a.idx.rank == 1)
    contract.shape("idx", a.idx, {{"T*topk", p.T * p.topk}});
  else
    contract.shape("idx", a.idx, {{"T", p.T}, {"topk", p.topk}});
  contract.shape("out", a.out, {{"T", p.T}, {"H", p.H}});
  contract.unit_last_stride("experts_out", a.experts_out);
  contract.dense_from("idx", a.idx, 0);
  contract.unit_last_stride("topk_weights", a.topk_weights);
  contract.unit_last_stride("out", a.out);
  contract.overlaps(moe_finalize_args(), a);

  p.experts_out = static_cast<const bf16*>(a.experts_out.data);
  p.experts_out_stride = a.experts_out.strides[0];
  p.idx.data = static_cast<const std::int32_t*>(a.idx.data);
  p.idx.size = p.T * p.topk;
  p.topk_weights = a.topk_weights.data;
  p.weights_dtype = a.topk_weights.dtype;
  p.weights_stride = a.topk_weights.strides[0];
  p.out = static_cast<bf16*>(a.out.data);
  p.out_stride = a.out.strides[0];
  p.device = a.experts_out.device;
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
