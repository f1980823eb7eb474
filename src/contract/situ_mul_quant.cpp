// SPDX-License-Identifier: Apache-2.0
#include "contract/situ_mul_quant.h"

#include <fmt/format.h>

namespace k3 {
namespace {

/// A shape with the expert axis in front, where there is one.
class Experts {
 public:
  Experts(const Contract& contract, bool given, std::int64_t count)
      : contract_(contract), axes_(given ? 1 : 0), count_(count) {}

  void shape(const char* argument, const ConstTensorView& t,
             std::initializer_list<Axis> axes) const {
    Axis expected[kMaxRank] = {{"E", count_}};
    std::copy(axes.begin(), axes.end(), expected + axes_);
    contract_.shape(argument, t, std::span(expected, axes.size() + axes_));
  }
  /// Of an axis after the experts'.
  [[nodiscard]] std::int64_t stride(const ConstTensorView& t, int axis) const {
    return t.strides[axis + axes_];
  }
  [[nodiscard]] std::int64_t expert_stride(const ConstTensorView& t) const {
    return axes_ != 0 ? t.strides[0] : 0;
  }

 private:
  const Contract& contract_;
  int axes_;
  std::int64_t count_;
};

void check_scalars(const Contract& contract, const SituMulQuantArgs& a) {
  contract.require(a.group_size == kSituGroup, "group_size", "must be 128",
                   [&] { return std::to_string(a.group_size); });
  contract.require(!a.transposed || a.scale_ue8m0, "transposed", "needs scale_ue8m0",
                   [] { return "transposed fp32 scales"; });
  for (const auto& [name, cap] : {std::pair{"beta", a.beta}, {"linear_beta", a.linear_beta}}) {
    contract.finite(name, cap);
    contract.require(cap != 0.0F, name, "must not be 0", [] { return "0"; });
  }
}

}  // namespace

std::span<const ArgRule<SituMulQuantArgs>> situ_mul_quant_args() {
  using Args = SituMulQuantArgs;
  static const ArgRule<Args> rules[] = {
      {"input", Access::kRead, false, {DType::kBF16}, {2, 3}, &Args::input},
      {"masked_m", Access::kRead, true, {DType::kI32}, {1}, &Args::masked_m},
      {"output_q", Access::kWrite, false, {DType::kF8E4M3}, {2, 3}, &Args::output_q},
      {"output_s", Access::kWrite, false, {DType::kF32, DType::kI32}, {2, 3}, &Args::output_s},
  };
  return rules;
}

void check_values(const Contract& contract, const SituMulQuantProblem& p, ValueChecks /*checks*/) {
  for (std::int64_t e = 0; e < p.masked_m.size; ++e)
    if (p.masked_m[e] < 0 || p.masked_m[e] > p.Tp)
      contract.fail("masked_m", fmt::format("must be from 0 to Tp = {}", p.Tp),
                    fmt::format("masked_m[{}] = {}", e, p.masked_m[e]));
}

SituMulQuantProblem check(const SituMulQuantArgs& args, Purpose purpose) {
  const Contract contract("situ_mul_quant", purpose);
  const ConstTensorView& input = args.input;
  const ConstTensorView output_q = args.output_q;
  const ConstTensorView output_s = args.output_s;
  contract.tensors(situ_mul_quant_args(), args);
  check_scalars(contract, args);

  const bool has_experts = input.rank == 3;
  contract.require(args.masked_m.defined() == has_experts, "masked_m",
                   "must be given exactly when input has an expert axis", args.masked_m);
  SituMulQuantProblem p;
  p.E = has_experts ? input.shape[0] : 1;
  p.Tp = input.shape[input.rank - 2];
  p.N = input.shape[input.rank - 1] / 2;
  contract.require(input.shape[input.rank - 1] % (2 * kSituGroup) == 0, "input",
                   "must have rows of whole groups, 2N with N a multiple of 128", input);
  const std::int64_t G = p.N / kSituGroup;
  const char* const rows = has_experts ? "Tp" : "M";
  const Experts experts(contract, has_experts, p.E);
  contract.shape("masked_m", args.masked_m, {{"E", p.E}});
  experts.shape("output_q", output_q, {{rows, p.Tp}, {"N", p.N}});
  contract.require((output_s.dtype == DType::kI32) == args.transposed, "output_s",
                   "must be i32 with transposed and f32 without", output_s);
  if (args.transposed)
    experts.shape("output_s", output_s, {{"ceil(G/4)", (G + 3) / 4}, {rows, p.Tp}});
  else
    experts.shape("output_s", output_s, {{rows, p.Tp}, {"G", G}});
  contract.unit_last_stride("input", input);
  contract.unit_last_stride("output_q", output_q);
  contract.overlaps(situ_mul_quant_args(), args);

  p.input = static_cast<const bf16*>(input.data);
  p.input_expert_stride = experts.expert_stride(input);
  p.input_row_stride = experts.stride(input, 0);
  p.masked_m = IndexList(args.masked_m);
  p.output_q = static_cast<std::uint8_t*>(args.output_q.data);
  p.q_expert_stride = experts.expert_stride(output_q);
  p.q_row_stride = experts.stride(output_q, 0);
  const int row_axis = args.transposed ? 1 : 0;
  p.scales = {args.output_s.data, experts.stride(output_s, row_axis),
              experts.stride(output_s, 1 - row_axis), G, args.transposed};
  p.scale_expert_stride = experts.expert_stride(output_s);
  p.format = args.scale_ue8m0 ? QuantFormat::kE4M3UE8M0 : QuantFormat::kE4M3;
  p.swizzle = args.swizzle;
  p.round_to_bf16 = args.round_to_bf16;
  p.beta = args.beta;
  p.linear_beta = args.linear_beta;
  p.device = input.device;
  if (contract.reads_values(p.device)) check_values(contract, p, ValueChecks::kRanges);
  return p;
}

}  // namespace k3
