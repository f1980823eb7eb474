// SPDX-License-Identifier: Apache-2.0
#include "contract/attn_res_mix.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "contract/checks.h"

namespace k3 {
namespace {

using Args = AttnResMixArgs;

auto make_rules(Access bank) {
  constexpr DTypeSet kBF16 = {DType::kBF16};
  return std::array<ArgRule<Args>, 7>{{
      {"bank", bank, false, kBF16, {3}, &Args::bank},
      {"prefix", Access::kRead, false, kBF16, {2}, &Args::prefix},
      {"score_norm_weight", Access::kRead, true, kBF16, {1}, &Args::score_norm_weight},
      {"score_proj", Access::kRead, true, kBF16, {1}, &Args::score_proj},
      {"score_weight", Access::kRead, true, kBF16, {1}, &Args::score_weight},
      {"out_norm_weight", Access::kRead, false, kBF16, {1}, &Args::out_norm_weight},
      {"out", Access::kWrite, false, kBF16, {2}, &Args::out},
  }};
}

void check_scores_are_given_once(const Contract& contract, const Args& a) {
  if (!a.score_weight.defined()) {
    contract.present("score_norm_weight", a.score_norm_weight);
    contract.present("score_proj", a.score_proj);
    return;
  }
  constexpr const char* kRule = "must be absent where score_weight is given";
  contract.require(!a.score_norm_weight.defined(), "score_norm_weight", kRule, a.score_norm_weight);
  contract.require(!a.score_proj.defined(), "score_proj", kRule, a.score_proj);
}

void check_shapes(const Contract& contract, const Args& a) {
  const std::int64_t T = a.prefix.shape[0];
  const std::int64_t H = a.prefix.shape[1];
  contract.require(H >= 8 && H % 8 == 0, "prefix",
                   "must have H columns, a multiple of 8 and at least 8", a.prefix);
  contract.shape("bank", a.bank, {{"T", T}, {"NB", a.bank.shape[1]}, {"H", H}});
  contract.shape("score_norm_weight", a.score_norm_weight, {{"H", H}});
  contract.shape("score_proj", a.score_proj, {{"H", H}});
  contract.shape("score_weight", a.score_weight, {{"H", H}});
  contract.shape("out_norm_weight", a.out_norm_weight, {{"H", H}});
  contract.shape("out", a.out, {{"T", T}, {"H", H}});
  if (a.num_bank_rows < 0 || a.num_bank_rows > kMaxBankRows)
    contract.fail("num_bank_rows", fmt::format("must be in 0 .. {}", kMaxBankRows),
                  fmt::format("{}", a.num_bank_rows));
  const std::int64_t needed = a.num_bank_rows + (a.write_prefix ? 1 : 0);
  if (a.bank.shape[1] < needed)
    contract.fail("bank",
                  fmt::format("must have NB >= {} rows, num_bank_rows{}", needed,
                              a.write_prefix ? " and the one that write_prefix writes" : ""),
                  describe(a.bank));
}

}  // namespace

std::span<const ArgRule<Args>> attn_res_mix_args() {
  static const auto rules = make_rules(Access::kReadWrite);
  return rules;
}

AttnResMixProblem check(const Args& a, Purpose purpose) {
  const Contract contract("attn_res_mix", purpose);
  const auto rules = attn_res_mix_args();
  contract.tensors(rules, a);
  check_scores_are_given_once(contract, a);
  check_shapes(contract, a);
  for (const auto& rule : rules) contract.unit_last_stride(rule.name, rule.view(a));
  static const auto rules_of_a_call_that_reads_bank = make_rules(Access::kRead);
  contract.overlaps(a.write_prefix ? rules : std::span(rules_of_a_call_that_reads_bank), a);
  contract.require(std::isfinite(a.eps) && a.eps >= 0.0F, "eps", "must be finite and at least 0",
                   [&] { return fmt::format("{}", a.eps); });

  AttnResMixProblem p;
  p.T = a.prefix.shape[0];
  p.H = contract.small("prefix", "H", a.prefix.shape[1]);
  p.num_bank_rows = a.num_bank_rows;
  p.bank = static_cast<bf16*>(a.bank.data);
  p.bank_token_stride = a.bank.strides[0];
  p.bank_row_stride = a.bank.strides[1];
  p.prefix = static_cast<const bf16*>(a.prefix.data);
  p.prefix_stride = a.prefix.strides[0];
  const bool folded = a.score_weight.defined();
  p.score_weight =
      static_cast<const bf16*>(folded ? a.score_weight.data : a.score_norm_weight.data);
  p.score_proj = folded ? nullptr : static_cast<const bf16*>(a.score_proj.data);
  p.out_norm_weight = static_cast<const bf16*>(a.out_norm_weight.data);
  p.out = static_cast<bf16*>(a.out.data);
  p.out_stride = a.out.strides[0];
  p.eps = a.eps;
  p.write_prefix = a.write_prefix;
  p.device = a.bank.device;
  return p;
}

}  // namespace k3
