// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "contract/checks.h"
#include "harness/driver.h"

/// A driver's tensors, from the list that the op's contract is made of.
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

}  // namespace k3::harness
