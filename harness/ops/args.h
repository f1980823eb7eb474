// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
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

/// The dtype of an output that may have either of two; for files, which hold none of it.
/// @throws ContractError on other text
inline DType scalar_dtype(const char* op, const Bundle& bundle, const char* name, DType fallback,
                          const std::array<DType, 2>& choices = {DType::kBF16, DType::kF32}) {
  const std::string text = scalar_text({.tensors = {}, .scalars = bundle.scalars}, name, "");
  if (text.empty()) return fallback;
  // The codes' own name is short: the ops have no other fp8.
  const auto text_of = [](DType dtype) {
    return std::string(dtype == DType::kF8E4M3 ? "e4m3" : name_of(dtype));
  };
  for (const DType choice : choices)
    if (text == text_of(choice)) return choice;
  throw ContractError(op, name, "must be " + text_of(choices[0]) + " or " + text_of(choices[1]),
                      text);
}

/// Scales of groups: [.., G] of fp32, or of words of four bytes each, as the scalar `scale_dtype`
/// says. `shape` is that of the codes.
inline Tensor poisoned_scales(const char* op, const Bundle& bundle, std::vector<std::int64_t> shape,
                              int group_size) {
  const DType dtype =
      scalar_dtype(op, bundle, "scale_dtype", DType::kF32, {DType::kF32, DType::kI32});
  if (!shape.empty() && group_size > 0) shape.back() /= group_size;
  if (!shape.empty() && dtype == DType::kI32) shape.back() = (shape.back() + 3) / 4;
  return poisoned(dtype, shape);
}

/// Adds `out`, poisoned, with the shape of the tensor `like`, where both allow it.
inline void add_out_like(Bundle& bundle, const char* like) {
  if (bundle.tensors.contains("out") || !bundle.tensors.contains(like)) return;
  bundle.tensors["out"] = poisoned(DType::kBF16, bundle.tensors.at(like).shape());
}

}  // namespace k3::harness
