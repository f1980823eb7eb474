// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "k3/error.h"
#include "tests/ops/run_helpers.h"

namespace k3::harness {

/// One rule of a contract, broken: `edit` spoils a valid call, and the error must name `argument`
/// and hold `rule`, a part of the rule's text.
struct Violation {
  std::string name;
  std::string argument;
  std::string rule;
  std::function<void(Call&)> edit;
};

inline void PrintTo(const Violation& violation, std::ostream* os) { *os << violation.name; }

inline std::string violation_name(const testing::TestParamInfo<Violation>& info) {
  return info.param.name;
}

/// `call` throws ContractError for the argument, with `rule` in its text.
inline void expect_refused(const std::function<void()>& call, const std::string& argument,
                           const std::string& rule) {
  try {
    call();
    ADD_FAILURE() << "accepted, against: " << argument << " " << rule;
  } catch (const ContractError& e) {
    const std::string text = e.what();
    EXPECT_EQ(e.argument(), argument) << text;
    EXPECT_NE(text.find(rule), std::string::npos) << text;
    EXPECT_NE(text.find("got "), std::string::npos) << text;
  }
}

inline void expect_untouched(const Bundle& bundle, const Bundle& before) {
  for (const auto& [name, tensor] : bundle.tensors)
    EXPECT_EQ(
        std::memcmp(tensor.storage(), before.tensors.at(name).storage(), tensor.storage_bytes()), 0)
        << name << " was touched";
}

/// Runs the unspoilt call, which must pass, then the spoilt one: expects ContractError for the
/// argument and the rule, and every byte of every tensor as it was. The workspace is the valid
/// call's, so that only the contract can refuse.
inline void expect_refused(const Driver& driver, const Bundle& valid, const Violation& violation) {
  Bundle unspoilt = valid.clone();
  ASSERT_NO_THROW(run_call(driver, host_call(driver, unspoilt))) << violation.name;

  Bundle bundle = valid.clone();
  Call call = host_call(driver, bundle);
  HostWorkspace workspace(driver.workspace_size(call, {}));
  ExecContext ctx;
  ctx.workspace = workspace.get();
  violation.edit(call);
  const Bundle before = bundle.clone();
  expect_refused([&] { driver.run(call, ctx); }, violation.argument, violation.rule);
  expect_untouched(bundle, before);
}

/// A workspace one byte too small, none at all, and one off its alignment.
inline void expect_workspace_checked(const Driver& driver, const Bundle& valid) {
  Bundle bundle = valid.clone();
  const Call call = host_call(driver, bundle);
  const std::size_t bytes = driver.workspace_size(call, {});
  ASSERT_GT(bytes, 0U);
  HostWorkspace workspace(bytes + 64);
  auto* const data = static_cast<std::byte*>(workspace.get().data);
  for (const auto& [broken, rule] :
       {std::pair{Workspace{data, bytes - 1}, "must hold"},
        {Workspace{}, "must hold"},
        {Workspace{data + 16, bytes}, "must be aligned to 64 bytes"}}) {
    ExecContext ctx;
    ctx.workspace = broken;
    expect_refused([&] { driver.run(call, ctx); }, "workspace", rule);
  }
  expect_untouched(bundle, valid);
}

// Common edits.

inline std::function<void(Call&)> absent(const std::string& name) {
  return [=](Call& call) { call.tensors.erase(name); };
}

inline std::function<void(Call&)> with_dtype(const std::string& name, DType dtype) {
  return [=](Call& call) { call.tensors.at(name).dtype = dtype; };
}

inline std::function<void(Call&)> with_size(const char* name, int axis, std::int64_t size) {
  return [=](Call& call) { call.tensors.at(name).shape[axis] = size; };
}

inline std::function<void(Call&)> with_stride(const char* name, int axis, std::int64_t stride) {
  return [=](Call& call) { call.tensors.at(name).strides[axis] = stride; };
}

inline std::function<void(Call&)> with_rank(const std::string& name, int rank) {
  return [=](Call& call) { call.tensors.at(name).rank = rank; };
}

inline std::function<void(Call&)> with_scalar(const char* name, const char* value) {
  return [=](Call& call) { call.scalars[name] = value; };
}

inline std::function<void(Call&)> shifted(const std::string& name, std::ptrdiff_t bytes) {
  return [=](Call& call) {
    TensorView& view = call.tensors.at(name);
    view.data = static_cast<std::byte*>(view.data) + bytes;
  };
}

inline std::function<void(Call&)> null_data(const std::string& name) {
  return [=](Call& call) { call.tensors.at(name).data = nullptr; };
}

inline std::function<void(Call&)> aliasing(const std::string& name, const std::string& other) {
  return [=](Call& call) { call.tensors.at(name).data = call.tensors.at(other).data; };
}

/// The smaller of two tensors moves to the start of the larger: it then overlaps nothing else.
inline std::function<void(Call&)> sharing_memory(const std::string& a, const std::string& b) {
  return [=](Call& call) {
    const auto bytes = [&](const std::string& name) {
      const TensorView& view = call.tensors.at(name);
      return static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
    };
    aliasing(bytes(a) < bytes(b) ? a : b, bytes(a) < bytes(b) ? b : a)(call);
  };
}

inline std::function<void(Call&)> on_cuda(const std::string& name) {
  return [=](Call& call) { call.tensors.at(name).device = {DeviceKind::kCuda, 0}; };
}

/// The rules that every op has for every tensor, each broken once: presence, dtype, rank, pointer,
/// device, and memory shared between an output and an input. `valid` gives each tensor; pairs in
/// `may_alias` may share memory.
inline std::vector<Violation> rules_of_every_tensor(
    const Driver& driver, const Bundle& valid,
    const std::vector<std::pair<std::string, std::string>>& may_alias = {}) {
  std::vector<Violation> violations;
  const auto given = [&](const ArgSpec& arg) { return valid.tensors.contains(arg.name); };
  for (const ArgSpec& arg : driver.args) {
    const std::string name = arg.name;
    if (!given(arg)) continue;
    if (!arg.optional)
      violations.push_back({name + "_is_absent", name, "must be given", absent(name)});
    violations.push_back({name + "_f64", name, "must be ", with_dtype(name, DType::kF64)});
    violations.push_back({name + "_rank_9", name, "must have rank ", with_rank(name, 9)});
    violations.push_back({name + "_null", name, "must have a pointer", null_data(name)});
    if (size_of(valid.tensors.at(name).dtype()) > 1)
      violations.push_back(
          {name + "_off_its_element", name, "must be aligned to its ", shifted(name, 1)});
    if (&arg != &driver.args.front())
      violations.push_back({name + "_elsewhere", name, "must be on cpu", on_cuda(name)});
    if (arg.role == Role::kInput) continue;
    for (const ArgSpec& other : driver.args) {
      const std::pair<std::string, std::string> pair = {name, other.name};
      if (other.role != Role::kInput || !given(other) ||
          std::find(may_alias.begin(), may_alias.end(), pair) != may_alias.end())
        continue;
      violations.push_back({name + "_on_" + other.name, name,
                            std::string("must not overlap ") + other.name,
                            sharing_memory(name, other.name)});
    }
  }
  return violations;
}

}  // namespace k3::harness
