// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_route_quant.h"

#include <fmt/format.h>

namespace k3 {
namespace {

PerTokenGroupQuantProblem check_quant(const Contract& contract, const MoeRouteQuantArgs& args) {
  const ConstTensorView& x = args.x;
  const int group = args.group_size;
  contract.require(group >= 16 && group <= 256 && group % 16 == 0, "group_size",
                   "must be a multiple of 16 from 16 to 256",
                   [&] { return std::to_string(group); });
  PerTokenGroupQuantProblem p;
  p.T = args.scores.shape[0];
  p.D = x.shape[1];
  contract.shape("x", x, {{"T", p.T}, {"D", p.D}});
  if (p.D % group != 0)
    contract.fail("x", fmt::format("must have rows of whole groups of {}", group), describe(x));
  const std::int64_t G = p.D / group;
  const bool packed = args.x_s.dtype == DType::kI32;
  contract.shape("x_q", args.x_q, {{"T", p.T}, {"D", p.D}});
  if (packed)
    contract.shape("x_s", args.x_s, {{"T", p.T}, {"ceil(G/4)", (G + 3) / 4}});
  else
    contract.shape("x_s", args.x_s, {{"T", p.T}, {"G", G}});
  contract.unit_last_stride("x", x);
  contract.unit_last_stride("x_q", args.x_q);

  p.group_size = group;
  p.format = QuantFormat::kE4M3UE8M0;
  p.input = x.data;
  p.input_dtype = x.dtype;
  p.input_stride = x.strides[0];
  p.output_q = static_cast<std::uint8_t*>(args.x_q.data);
  p.q_stride = args.x_q.strides[0];
  p.scales = {args.x_s.data, args.x_s.strides[0], args.x_s.strides[1], G, packed};
  p.device = x.device;
  return p;
}

}  // namespace

std::span<const ArgRule<MoeRouteQuantArgs>> moe_route_quant_args() {
  using Args = MoeRouteQuantArgs;
  constexpr auto kWrite = Access::kWrite;
  static const ArgRule<Args> rules[] = {
      {"scores", Access::kRead, false, {DType::kBF16, DType::kF32}, {2}, &Args::scores},
      {"bias", Access::kRead, false, {DType::kF32}, {1}, &Args::bias},
      {"x", Access::kRead, false, {DType::kBF16, DType::kF32}, {2}, &Args::x},
      {"topk_weights", kWrite, false, {DType::kF32}, {2}, &Args::topk_weights},
      {"topk_ids", kWrite, false, {DType::kI32}, {2}, &Args::topk_ids},
      {"packed", kWrite, true, {DType::kI32}, {2}, &Args::packed},
      {"x_q", kWrite, false, {DType::kF8E4M3}, {2}, &Args::x_q},
      {"x_s", kWrite, false, {DType::kI32, DType::kF32}, {2}, &Args::x_s},
  };
  return rules;
}

MoeRouteQuantProblem check(const MoeRouteQuantArgs& args, Purpose purpose) {
  const Contract contract("moe_route_quant", purpose);
  contract.tensors(moe_route_quant_args(), args);
  contract.shape("scores", args.scores, {{"T", args.scores.shape[0]}, {"E", args.bias.shape[0]}});
  MoeRouteQuantProblem p;
  p.device = args.scores.device;
  p.routing.device = p.device;
  static_cast<MoeRouting&>(p.routing) =
      check_routing(contract, "scores", args.scores, args.bias, args.topk_weights, args.topk_ids,
                    {args.topk, args.renormalize, args.routed_scaling_factor, false});
  contract.shape("packed", args.packed, {{"T", p.routing.num_tokens}, {"topk", args.topk}});
  contract.unit_last_stride("packed", args.packed);
  p.routing.packed = static_cast<std::int32_t*>(args.packed.data);
  p.routing.packed_stride = args.packed.strides[0];
  p.quant = check_quant(contract, args);
  contract.overlaps(moe_route_quant_args(), args);
  return p;
}

}  // namespace k3
