// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_front.h"

#include <algorithm>

namespace k3 {
namespace {

/// What both ops ask of a merged row of `columns` columns and of the outputs.
template <class Args>
MoeFrontEpilogueProblem check_epilogue(const Contract& contract, const char* merged_name,
                                       const ConstTensorView& merged, const Args& args) {
  MoeFrontEpilogueProblem p;
  const std::int64_t experts = args.bias.shape[0];
  contract.require(merged.shape[1] >= experts, merged_name,
                   "must have columns for all experts of bias", merged);
  static_cast<MoeRouting&>(p.routing) =
      check_routing(contract, merged_name, merged, args.bias, args.topk_weights, args.topk_ids,
                    {args.topk, args.renormalize, args.routed_scaling_factor, args.sorted});
  p.L = merged.shape[1] - experts;
  contract.shape("routed", args.routed, {{"T", merged.shape[0]}, {"L", p.L}});
  contract.unit_last_stride("routed", args.routed);
  p.latent_stride = merged.strides[0];
  p.routed = static_cast<bf16*>(args.routed.data);
  p.routed_stride = args.routed.strides[0];
  p.device = args.bias.device;
  p.routing.device = p.device;
  return p;
}

constexpr DTypeSet kBF16 = {DType::kBF16};
constexpr DTypeSet kF32 = {DType::kF32};
constexpr DTypeSet kI32 = {DType::kI32};

}  // namespace

std::span<const ArgRule<MoeFrontArgs>> moe_front_args() {
  using Args = MoeFrontArgs;
  static const ArgRule<Args> rules[] = {
      {"hidden", Access::kRead, false, kBF16, {2}, &Args::hidden},
      {"weight", Access::kRead, false, kBF16, {2}, &Args::weight},
      {"bias", Access::kRead, false, kF32, {1}, &Args::bias},
      {"topk_weights", Access::kWrite, false, kF32, {2}, &Args::topk_weights},
      {"topk_ids", Access::kWrite, false, kI32, {2}, &Args::topk_ids},
      {"routed", Access::kWrite, false, kBF16, {2}, &Args::routed},
  };
  return rules;
}

std::span<const ArgRule<MoeFrontEpilogueArgs>> moe_front_epilogue_args() {
  using Args = MoeFrontEpilogueArgs;
  static const ArgRule<Args> rules[] = {
      {"merged", Access::kRead, false, kF32, {2}, &Args::merged},
      {"bias", Access::kRead, false, kF32, {1}, &Args::bias},
      {"topk_weights", Access::kWrite, false, kF32, {2}, &Args::topk_weights},
      {"topk_ids", Access::kWrite, false, kI32, {2}, &Args::topk_ids},
      {"routed", Access::kWrite, false, kBF16, {2}, &Args::routed},
  };
  return rules;
}

MoeFrontEpilogueProblem check(const MoeFrontEpilogueArgs& args, Purpose purpose) {
  const Contract contract("moe_front_epilogue", purpose);
  contract.tensors(moe_front_epilogue_args(), args);
  MoeFrontEpilogueProblem p = check_epilogue(contract, "merged", args.merged, args);
  contract.overlaps(moe_front_epilogue_args(), args);
  if (args.merged.data != nullptr)
    p.latent = static_cast<const float*>(args.merged.data) + p.routing.num_experts;
  return p;
}

MoeFrontProblem check(const MoeFrontArgs& args, Purpose purpose) {
  const Contract contract("moe_front", purpose);
  contract.tensors(moe_front_args(), args);
  MoeFrontProblem p;
  p.T = args.hidden.shape[0];
  p.H = args.hidden.shape[1];
  p.N = args.weight.shape[0];
  contract.shape("weight", args.weight, {{"E+L", p.N}, {"H", p.H}});
  contract.require(p.H >= 1, "hidden", "must have at least one column", args.hidden);
  contract.unit_last_stride("hidden", args.hidden);
  contract.unit_last_stride("weight", args.weight);
  // Merged as it will lie in the workspace; its size must stay countable.
  const ConstTensorView merged(nullptr, DType::kF32, {p.T, p.N}, args.hidden.device);
  contract.require(p.T <= (std::int64_t{1} << 56) / std::max<std::int64_t>(p.N, 1), "hidden",
                   "must not have more rows than a workspace can hold", args.hidden);
  contract.require(p.N >= args.bias.shape[0], "weight", "must have rows for all experts of bias",
                   args.weight);
  p.epilogue = check_epilogue(contract, "merged", merged, args);
  contract.overlaps(moe_front_args(), args);
  p.hidden = static_cast<const bf16*>(args.hidden.data);
  p.hidden_stride = args.hidden.strides[0];
  p.weight = static_cast<const bf16*>(args.weight.data);
  p.weight_stride = args.weight.strides[0];
  p.device = args.hidden.device;
  return p;
}

MoeFrontEpilogueProblem epilogue_over(const MoeFrontProblem& problem, const float* merged) {
  MoeFrontEpilogueProblem p = problem.epilogue;
  p.routing.scores = merged;
  p.routing.scores_stride = problem.N;
  p.latent = merged + p.routing.num_experts;
  p.latent_stride = problem.N;
  return p;
}

}  // namespace k3
