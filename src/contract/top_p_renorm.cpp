// SPDX-License-Identifier: Apache-2.0
#include "contract/top_p_renorm.h"

#include <fmt/format.h>

#include "contract/rows.h"

namespace k3 {
namespace {

constexpr const char* kInRange = "must be above 0 and at most 1";

bool in_range(float top_p) { return top_p > 0.0F && top_p <= 1.0F; }

}  // namespace

std::span<const ArgRule<TopPRenormArgs>> top_p_renorm_args() {
  using Args = TopPRenormArgs;
  constexpr DTypeSet kF32 = {DType::kF32};
  static const ArgRule<Args> rules[] = {
      {"probs", Access::kRead, false, kF32, {2}, &Args::probs},
      {"top_ps", Access::kRead, true, kF32, {1}, &Args::top_ps},
      {"out", Access::kWrite, false, kF32, {2}, &Args::out},
  };
  return rules;
}

TopPRenormProblem check(const TopPRenormArgs& a, Purpose purpose) {
  const Contract contract("top_p_renorm", purpose);
  const auto rules = top_p_renorm_args();
  contract.tensors(rules, a);
  TopPRenormProblem p;
  p.B = a.probs.shape[0];
  p.V = contract.small("probs", "V", a.probs.shape[1]);
  contract.shape("top_ps", a.top_ps, {{"B", p.B}});
  contract.shape("out", a.out, {{"B", p.B}, {"V", p.V}});
  contract.unit_last_stride("probs", a.probs);
  contract.unit_last_stride("out", a.out);
  if (same_memory(a.probs, a.out))
    contract.overlaps(rules, a, {rules[2].name, rules[0].name});
  else
    contract.overlaps(rules, a);
  contract.require(a.top_p.has_value() != a.top_ps.defined(), "top_p",
                   "must be given if and only if top_ps is not",
                   [&] { return a.top_p ? fmt::format("{}", *a.top_p) : "neither"; });
  if (a.top_p)
    contract.require(in_range(*a.top_p), "top_p", kInRange,
                     [&] { return fmt::format("{}", *a.top_p); });

  p.probs = static_cast<const float*>(a.probs.data);
  p.probs_stride = a.probs.strides[0];
  p.top_ps = static_cast<const float*>(a.top_ps.data);
  p.top_ps_stride = a.top_ps.strides[0];
  p.top_p = a.top_p.value_or(1.0F);
  p.out = static_cast<float*>(a.out.data);
  p.out_stride = a.out.strides[0];
  p.device = a.probs.device;
  if (p.top_ps != nullptr && contract.reads_values(p.device))
    for (std::int64_t row = 0; row < p.B; ++row) {
      const float top_p = p.top_ps[row * p.top_ps_stride];
      contract.require(in_range(top_p), "top_ps", kInRange,
                       [&] { return fmt::format("top_ps[{}] = {}", row, top_p); });
    }
  return p;
}

}  // namespace k3
