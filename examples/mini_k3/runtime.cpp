// SPDX-License-Identifier: Apache-2.0
#include "examples/mini_k3/runtime.h"

#include "k3/k3.h"

namespace k3::mini {

Runtime::Runtime(const Config& config, Machine& machine)
    : config_(config),
      machine_(machine),
      scratch_(machine),
      zeros_(machine, DType::kBF16, {1, config.hidden_size}) {}

void Runtime::rms_norm(const ConstTensorView& x, const ConstTensorView& weight,
                       const TensorView& out) {
  AttnResMixArgs args;  // a mixture of nothing but its prefix
  args.bank = TensorView(nullptr, DType::kBF16, {x.shape[0], 0, x.shape[1]}, machine_.device());
  args.prefix = x;
  args.score_weight = weight;
  args.out_norm_weight = weight;
  args.out = out;
  args.eps = config_.rms_norm_eps;
  run(attn_res_mix, attn_res_mix_workspace_size, args);
}

void Runtime::add(const ConstTensorView& a, const ConstTensorView& b, const TensorView& out) {
  ConstTensorView zeros = zeros_;
  zeros.shape[0] = a.shape[0];
  zeros.strides[0] = 0;
  Add3Args args;
  args.a = a;
  args.b = b;
  args.c = zeros;
  args.out = out;
  run(add3, add3_workspace_size, args);
}

void Runtime::situ(const ConstTensorView& input, const TensorView& out) {
  SituAndMulArgs args;
  args.input = input;
  args.out = out;
  args.beta = config_.situ_beta;
  args.linear_beta = config_.situ_linear_beta;
  run(situ_and_mul, situ_and_mul_workspace_size, args);
}

Workspace Runtime::workspace(std::size_t bytes) {
  if (bytes == 0) return {};
  if (workspaces_.empty() || bytes > workspaces_.back().bytes())
    workspaces_.emplace_back(machine_, DType::kU8,
                             std::initializer_list{static_cast<std::int64_t>(bytes)});
  return {workspaces_.back().view().data, bytes};
}

}  // namespace k3::mini
