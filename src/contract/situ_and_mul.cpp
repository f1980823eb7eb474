// SPDX-License-Identifier: Apache-2.0
#include "contract/situ_and_mul.h"

#include <fmt/format.h>

#include "contract/rows.h"

namespace k3 {

std::span<const ArgRule<SituAndMulArgs>> situ_and_mul_args() {
  using Args = SituAndMulArgs;
  static constexpr RankSet kRanks = {1, 2, 3, 4, 5, 6, 7, 8};
  static const ArgRule<Args> rules[] = {
      {"input", Access::kRead, false, {DType::kBF16}, kRanks, &Args::input},
      {"out", Access::kWrite, false, {DType::kBF16}, kRanks, &Args::out},
  };
  return rules;
}

SituAndMulProblem check(const SituAndMulArgs& args, Purpose purpose) {
  const Contract contract("situ_and_mul", purpose);
  const ConstTensorView& input = args.input;
  const ConstTensorView out = args.out;
  contract.tensors(situ_and_mul_args(), args);
  contract.require(out.rank == input.rank, "out", "must have the rank of input", out);

  const std::int64_t width = input.shape[input.rank - 1];
  contract.require(width % 2 == 0, "input", "must have an even last axis (gate | up)", input);
  for (int d = 0; d < input.rank; ++d) {
    const std::int64_t expected = d + 1 < input.rank ? input.shape[d] : width / 2;
    if (out.shape[d] != expected)
      contract.fail("out", fmt::format("must be half as wide as input, {}", describe(input)),
                    describe(out));
  }
  contract.unit_last_stride("input", input);
  contract.unit_last_stride("out", out);

  SituAndMulProblem problem;
  const Rows in_rows = fold_rows(contract, "input", input, input.rank - 1);
  const Rows out_rows = fold_rows(contract, "out", out, out.rank - 1);
  contract.overlaps(situ_and_mul_args(), args);
  contract.finite("beta", args.beta);
  contract.require(args.beta != 0.0F, "beta", "must not be 0", [] { return "0"; });
  if (args.linear_beta) {
    contract.finite("linear_beta", *args.linear_beta);
    contract.require(*args.linear_beta != 0.0F, "linear_beta", "must not be 0", [] { return "0"; });
  }

  problem.num_rows = in_rows.count;
  problem.D = width / 2;
  problem.input = static_cast<const bf16*>(input.data);
  problem.input_stride = in_rows.stride;
  problem.out = static_cast<bf16*>(args.out.data);
  problem.out_stride = out_rows.stride;
  problem.beta = args.beta;
  problem.has_linear_beta = args.linear_beta.has_value();
  problem.linear_beta = args.linear_beta.value_or(0.0F);
  problem.device = input.device;
  return problem;
}

}  // namespace k3
