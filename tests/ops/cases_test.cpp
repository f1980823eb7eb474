// SPDX-License-Identifier: Apache-2.0
// Every case of every op on every variant of this build against the double-precision oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cpu/targets.h"
#include "dispatch/archs.h"
#include "harness/device.h"
#include "harness/runner.h"
#include "k3/capability.h"

namespace k3::harness {
namespace {

struct Variant {
  Backend backend;
  std::string name;
};

std::vector<Variant> variants_of(const std::string& op) {
  std::vector<Variant> variants;
  std::set<std::string> seen;
  for (const Capability& row : capabilities())
    if (row.op == op && seen.insert(name_of(row.backend) + row.variant).second)
      variants.push_back({row.backend, row.variant});
  return variants;
}

struct Parameter {
  const Driver* driver;
  Variant variant;
  Case test_case;
};

void PrintTo(const Parameter& p, std::ostream* os) { *os << p.test_case.name; }

std::vector<Parameter> all_parameters() {
  std::vector<Parameter> parameters;
  for (const Driver* driver : drivers())
    for (const Variant& variant : variants_of(driver->name))
      for (const Case& test_case : driver->cases())
        parameters.push_back({driver, variant, test_case});
  return parameters;
}

class OpCase : public testing::TestWithParam<Parameter> {};

TEST_P(OpCase, AgreesWithTheOracle) {
  const Parameter& p = GetParam();
  RunOptions options;
  options.variant = p.variant.name;
  if (p.variant.backend == Backend::kCuda) {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
    options.on = RunOn::kCuda;
  }
  const CaseResult result = check_case(*p.driver, p.test_case, options);
  if (result.skipped) GTEST_SKIP() << result.why;
  EXPECT_TRUE(result.passed) << result.why;
}

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  const Parameter& p = info.param;
  return std::string(p.driver->name) + "_" + name_of(p.variant.backend) + "_" + p.variant.name +
         "_" + p.test_case.name;
}

INSTANTIATE_TEST_SUITE_P(All, OpCase, testing::ValuesIn(all_parameters()), parameter_name);

struct OpVariant {
  const Driver* driver;
  Variant variant;
};

std::string text_of(const OpVariant& v) {
  return std::string(v.driver->name) + "_" + name_of(v.variant.backend) + "_" + v.variant.name;
}

void PrintTo(const OpVariant& v, std::ostream* os) { *os << text_of(v); }

std::vector<OpVariant> all_variants() {
  std::vector<OpVariant> all;
  for (const Driver* driver : drivers())
    for (const Variant& variant : variants_of(driver->name)) all.push_back({driver, variant});
  return all;
}

/// A variant whose every case is skipped would look like one that passes.
class OpVariantRuns : public testing::TestWithParam<OpVariant> {};

TEST_P(OpVariantRuns, AtLeastOneCase) {
  const auto& [driver, variant] = GetParam();
  RunOptions options;
  options.variant = variant.name;
  if (variant.backend == Backend::kCuda) {
    if (const char* why = cuda_unusable()) GTEST_SKIP() << why;
    options.on = RunOn::kCuda;
  }
  const auto cases = driver->cases();
  EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&, d = driver](const Case& test_case) {
    return !check_case(*d, test_case, options).skipped;
  }));
}

INSTANTIATE_TEST_SUITE_P(All, OpVariantRuns, testing::ValuesIn(all_variants()),
                         [](const auto& info) { return text_of(info.param); });

/// The quick cases again on the SIMD targets that dispatch does not take by itself.
class SimdTarget : public testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { cpu::use_target(""); }
};

TEST_P(SimdTarget, AgreesWithTheOracle) {
  if (!cpu::use_target(GetParam())) GTEST_SKIP() << "this CPU has no " << GetParam();
  for (const Driver* driver : drivers())
    for (const Case& test_case : driver->cases()) {
      if (!test_case.quick) continue;
      const CaseResult result = check_case(*driver, test_case, {});
      EXPECT_TRUE(result.passed) << driver->name << " " << test_case.name << ": " << result.why;
    }
}

std::vector<std::string> other_targets() {
  std::vector<std::string> targets = cpu::compiled_targets();
  std::erase(targets, dispatch::cpu_target());
  return targets;
}

INSTANTIATE_TEST_SUITE_P(All, SimdTarget, testing::ValuesIn(other_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace k3::harness
