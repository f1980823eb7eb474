// SPDX-License-Identifier: Apache-2.0
#include "contract/per_token_group_quant.h"

#include <fmt/format.h>

namespace k3 {

std::span<const ArgRule<PerTokenGroupQuantArgs>> per_token_group_quant_args() {
  using Args = PerTokenGroupQuantArgs;
  static const ArgRule<Args> rules[] = {
      {"input", Access::kRead, false, {DType::kBF16, DType::kF32}, {2}, &Args::input},
      {"output_q", Access::kWrite, false, {DType::kF8E4M3, DType::kI8}, {2}, &Args::output_q},
      {"output_s", Access::kWrite, false, {DType::kF32, DType::kI32}, {2}, &Args::output_s},
  };
  return rules;
}

PerTokenGroupQuantProblem check(const PerTokenGroupQuantArgs& args, Purpose purpose) {
  const Contract contract("per_token_group_quant", purpose);
  const ConstTensorView& input = args.input;
  const ConstTensorView output_q = args.output_q;
  const ConstTensorView output_s = args.output_s;
  contract.tensors(per_token_group_quant_args(), args);

  const int group = args.group_size;
  contract.require(group >= 16 && group <= 256 && group % 16 == 0, "group_size",
                   "must be a multiple of 16 from 16 to 256",
                   [&] { return std::to_string(group); });
  PerTokenGroupQuantProblem p;
  p.T = input.shape[0];
  p.D = input.shape[1];
  if (p.D % group != 0)
    contract.fail("input", fmt::format("must have rows of whole groups of {}", group),
                  describe(input));
  const std::int64_t G = p.D / group;
  const bool packed = output_s.dtype == DType::kI32;
  contract.shape("output_q", output_q, {{"T", p.T}, {"D", p.D}});
  if (packed)
    contract.shape("output_s", output_s, {{"T", p.T}, {"ceil(G/4)", (G + 3) / 4}});
  else
    contract.shape("output_s", output_s, {{"T", p.T}, {"G", G}});
  contract.require(!packed || args.scale_ue8m0, "output_s", "must be f32 without scale_ue8m0",
                   output_s);
  contract.require(!args.scale_ue8m0 || output_q.dtype == DType::kF8E4M3, "output_q",
                   "must be f8_e4m3 with scale_ue8m0", output_q);
  contract.unit_last_stride("input", input);
  contract.unit_last_stride("output_q", output_q);
  contract.overlaps(per_token_group_quant_args(), args);

  p.group_size = group;
  p.format = output_q.dtype == DType::kI8 ? QuantFormat::kI8
             : args.scale_ue8m0           ? QuantFormat::kE4M3UE8M0
                                          : QuantFormat::kE4M3;
  p.input = input.data;
  p.input_dtype = input.dtype;
  p.input_stride = input.strides[0];
  p.output_q = static_cast<std::uint8_t*>(args.output_q.data);
  p.q_stride = output_q.strides[0];
  p.scales = {args.output_s.data, output_s.strides[0], output_s.strides[1], G, packed};
  p.device = input.device;
  return p;
}

}  // namespace k3
