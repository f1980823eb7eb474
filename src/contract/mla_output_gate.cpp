// SPDX-License-Identifier: Apache-2.0
#include "contract/mla_output_gate.h"

#include <algorithm>

#include "contract/rows.h"

namespace k3 {

std::span<const ArgRule<MlaOutputGateArgs>> mla_output_gate_args() {
  using Args = MlaOutputGateArgs;
  static constexpr RankSet kRanks = {1, 2, 3, 4, 5, 6, 7, 8};
  static const ArgRule<Args> rules[] = {
      {"x", Access::kRead, false, {DType::kBF16}, kRanks, &Args::x},
      {"gate", Access::kRead, false, {DType::kBF16}, kRanks, &Args::gate},
      {"out", Access::kWrite, false, {DType::kBF16}, kRanks, &Args::out},
  };
  return rules;
}

MlaOutputGateProblem check(const MlaOutputGateArgs& args, Purpose purpose) {
  const Contract contract("mla_output_gate", purpose);
  const auto rules = mla_output_gate_args();
  const ConstTensorView& x = args.x;
  const ConstTensorView& gate = args.gate;
  const ConstTensorView out = args.out;
  contract.tensors(rules, args);
  require_shape_of(contract, "gate", gate, "x", x);
  require_shape_of(contract, "out", out, "x", x);
  contract.unit_last_stride("x", x);
  contract.unit_last_stride("gate", gate);
  contract.unit_last_stride("out", out);

  const int axis = std::max({first_dense_axis(x), first_dense_axis(gate), first_dense_axis(out)});
  const Rows x_rows = fold_rows(contract, "x", x, axis);
  const Rows gate_rows = fold_rows(contract, "gate", gate, axis);
  const Rows out_rows = fold_rows(contract, "out", out, axis);
  if (same_memory(x, out))
    contract.overlaps(rules, args, {rules[2].name, rules[0].name});
  else
    contract.overlaps(rules, args);

  MlaOutputGateProblem problem;
  problem.num_rows = x_rows.count;
  problem.D = 1;
  for (int d = axis; d < x.rank; ++d) problem.D *= x.shape[d];
  problem.x = static_cast<const bf16*>(x.data);
  problem.x_stride = x_rows.stride;
  problem.gate = static_cast<const bf16*>(gate.data);
  problem.gate_stride = gate_rows.stride;
  problem.out = static_cast<bf16*>(args.out.data);
  problem.out_stride = out_rows.stride;
  problem.device = x.device;
  return problem;
}

}  // namespace k3
