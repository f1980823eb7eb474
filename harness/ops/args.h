// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "contract/checks.h"
#include "harness/driver.h"
#include "harness/inputs.h"
#include "k3/error.h"
#include "k3/ops/kda_types.h"

/// What drivers share: tensors from the list that the op's contract is made of, scalars, outputs.
namespace k3::harness {

template <class Args>
std::vector<ArgSpec> specs_of(std::span<const ArgRule<Args>> rules) {
  std::vector<ArgSpec> specs;
  for (const auto& rule : rules) {
    const Role role = rule.access == Access::kRead    ? Role::kInput
                      : rule.access == Access::kWrite ? Role::kOutput
                                                      : Role::kInPlace;
    specs.push_back({rule.name, role, rule.optional});
  }
  return specs;
}

template <class Args>
void set_tensors(std::span<const ArgRule<Args>> rules, const Call& call, Args& args) {
  for (const auto& rule : rules)
    std::visit([&](auto member) { args.*member = call.tensor(rule.name); }, rule.member);
}

/// "bf16" or "f32". @throws ContractError on other text
inline Rounding scalar_rounding(const char* op, const Call& call, const char* name,
                                Rounding fallback) {
  const std::string text = scalar_text(call, name, "");
  if (text.empty()) return fallback;
  if (text == "bf16") return Rounding::kBF16;
  if (text == "f32") return Rounding::kF32;
  throw ContractError(op, name, "must be bf16 or f32", text);
}

/// Those of kda_fused_decode and, among others, kda_verify.
template <class Args>
void set_decode_scalars(const char* op, const Call& call, Args& args) {
  args.scale = scalar_float(op, call, "scale");
  args.lower_bound = scalar_float(op, call, "lower_bound");
  args.eps_o = scalar_float(op, call, "eps_o", args.eps_o);
  args.round_conv = scalar_rounding(op, call, "round_conv", args.round_conv);
  args.round_o = scalar_rounding(op, call, "round_o", args.round_o);
  args.null_index = scalar_int(op, call, "null_index", args.null_index);
}

/// Adds `out`, poisoned, with the shape of the tensor `like`, where both allow it.
inline void add_out_like(Bundle& bundle, const char* like) {
  if (bundle.tensors.contains("out") || !bundle.tensors.contains(like)) return;
  bundle.tensors["out"] = poisoned(DType::kBF16, bundle.tensors.at(like).shape());
}

}  // namespace k3::harness
