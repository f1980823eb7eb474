// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_pack_topk.h"

#include <algorithm>

namespace k3 {

std::span<const ArgRule<MoePackTopkArgs>> moe_pack_topk_args() {
  using Args = MoePackTopkArgs;
  static const ArgRule<Args> rules[] = {
      {"topk_ids", Access::kRead, false, {DType::kI32, DType::kI64}, {1, 2}, &Args::topk_ids},
      {"topk_weights", Access::kRead, false, {DType::kF32}, {1, 2}, &Args::topk_weights},
      {"packed", Access::kWrite, false, {DType::kI32}, {1, 2}, &Args::packed},
  };
  return rules;
}

MoePackTopkProblem check(const MoePackTopkArgs& args, Purpose purpose) {
  const Contract contract("moe_pack_topk", purpose);
  contract.tensors(moe_pack_topk_args(), args);
  const ConstTensorView& ids = args.topk_ids;
  for (const auto& rule : moe_pack_topk_args()) {
    const ConstTensorView tensor = rule.view(args);
    if (ids.rank == 1)
      contract.shape(rule.name, tensor, {{"N", ids.shape[0]}});
    else
      contract.shape(rule.name, tensor, {{"T", ids.shape[0]}, {"topk", ids.shape[1]}});
    contract.unit_last_stride(rule.name, tensor);
  }
  contract.overlaps(moe_pack_topk_args(), args);

  MoePackTopkProblem p;
  p.num_rows = ids.rank == 1 ? 1 : ids.shape[0];
  p.columns = ids.shape[ids.rank - 1];
  const auto row_stride = [&](const ConstTensorView& t) {
    return t.rank == 1 || t.shape[0] < 2 ? p.columns : t.strides[0];
  };
  p.ids = ids.data;
  p.wide_ids = ids.dtype == DType::kI64;
  p.ids_stride = row_stride(ids);
  p.weights = static_cast<const float*>(args.topk_weights.data);
  p.weights_stride = row_stride(args.topk_weights);
  p.packed = static_cast<std::int32_t*>(args.packed.data);
  p.packed_stride = row_stride(args.packed);
  p.device = ids.device;
  const std::int64_t strides[] = {p.ids_stride, p.weights_stride, p.packed_stride};
  if (std::all_of(std::begin(strides), std::end(strides),
                  [&](std::int64_t stride) { return stride == p.columns; })) {
    p.columns *= p.num_rows;
    p.num_rows = 1;
  }
  return p;
}

}  // namespace k3
