// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_route_topk.h"

namespace k3 {

std::span<const ArgRule<MoeRouteTopkArgs>> moe_route_topk_args() {
  using Args = MoeRouteTopkArgs;
  static const ArgRule<Args> rules[] = {
      {"scores", Access::kRead, false, {DType::kBF16, DType::kF32}, {2}, &Args::scores},
      {"bias", Access::kRead, false, {DType::kF32}, {1}, &Args::bias},
      {"topk_weights", Access::kWrite, false, {DType::kF32}, {2}, &Args::topk_weights},
      {"topk_ids", Access::kWrite, false, {DType::kI32}, {2}, &Args::topk_ids},
  };
  return rules;
}

MoeRouteTopkProblem check(const MoeRouteTopkArgs& args, Purpose purpose) {
  const Contract contract("moe_route_topk", purpose);
  contract.tensors(moe_route_topk_args(), args);
  contract.shape("scores", args.scores, {{"T", args.scores.shape[0]}, {"E", args.bias.shape[0]}});
  MoeRouteTopkProblem problem;
  static_cast<MoeRouting&>(problem) =
      check_routing(contract, "scores", args.scores, args.bias, args.topk_weights, args.topk_ids,
                    {args.topk, args.renormalize, args.routed_scaling_factor, args.sorted});
  contract.overlaps(moe_route_topk_args(), args);
  problem.device = args.scores.device;
  return problem;
}

}  // namespace k3
