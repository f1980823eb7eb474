// SPDX-License-Identifier: Apache-2.0
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/targets.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cctype>

namespace k3::cpu {
namespace {

HWY_EXPORT(target_name);

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

std::string chosen_target() { return lower(HWY_DYNAMIC_DISPATCH(target_name)()); }

std::vector<std::string> compiled_targets() {
  std::vector<std::string> names;
  std::int64_t targets = HWY_TARGETS;
  for (; targets != 0; targets &= targets - 1)
    names.push_back(lower(hwy::TargetName(targets & -targets)));
  return names;
}

bool use_target(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  std::int64_t mask = 0;
  if (!name.empty()) {
    for (std::int64_t target : hwy::SupportedAndGeneratedTargets())
      if (lower(hwy::TargetName(target)) == name) mask = target;
    if (mask == 0) return false;
  }
  hwy::SetSupportedTargetsForTest(mask);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return true;
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
