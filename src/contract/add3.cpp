// SPDX-License-Identifier: Apache-2.0
#include "contract/add3.h"

#include <algorithm>

#include "contract/rows.h"

namespace k3 {

std::span<const ArgRule<Add3Args>> add3_args() {
  using Args = Add3Args;
  static constexpr RankSet kRanks = {1, 2, 3, 4, 5, 6, 7, 8};
  static const ArgRule<Args> rules[] = {
      {"a", Access::kRead, false, {DType::kBF16}, kRanks, &Args::a},
      {"b", Access::kRead, false, {DType::kBF16}, kRanks, &Args::b},
      {"c", Access::kRead, false, {DType::kBF16}, kRanks, &Args::c},
      {"out", Access::kWrite, false, {DType::kBF16}, kRanks, &Args::out},
  };
  return rules;
}

Add3Problem check(const Add3Args& args, Purpose purpose) {
  const Contract contract("add3", purpose);
  const auto rules = add3_args();
  contract.tensors(rules, args);
  int axis = 0;
  for (const auto& rule : rules) {
    const ConstTensorView t = rule.view(args);
    require_shape_of(contract, rule.name, t, "a", args.a);
    contract.unit_last_stride(rule.name, t);
    axis = std::max(axis, first_dense_axis(t));
  }
  const Rows a = fold_rows(contract, "a", args.a, axis);
  const Rows b = fold_rows(contract, "b", args.b, axis);
  const Rows c = fold_rows(contract, "c", args.c, axis);
  const Rows out = fold_rows(contract, "out", args.out, axis);
  if (same_memory(args.a, args.out))
    contract.overlaps(rules, args, {rules[3].name, rules[0].name});
  else
    contract.overlaps(rules, args);

  Add3Problem p;
  p.num_rows = a.count;
  p.D = 1;
  for (int d = axis; d < args.a.rank; ++d) p.D *= args.a.shape[d];
  p.a = static_cast<const bf16*>(args.a.data);
  p.a_stride = a.stride;
  p.b = static_cast<const bf16*>(args.b.data);
  p.b_stride = b.stride;
  p.c = static_cast<const bf16*>(args.c.data);
  p.c_stride = c.stride;
  p.out = static_cast<bf16*>(args.out.data);
  p.out_stride = out.stride;
  p.device = args.a.device;
  return p;
}

}  // namespace k3
