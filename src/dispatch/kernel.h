// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/checks.h"
#include "dispatch/archs.h"
#include "dispatch/debug_checks.h"
#include "dispatch/target.h"
#include "k3/capability.h"
#include "k3/context.h"
#include "k3/tensor.h"

namespace k3 {

/// One variant of an op. A variant without an entry in its op's list does not exist.
template <class Problem>
struct Kernel {
  Backend backend;
  const char* variant;
  const char* conditions;
  /// Null where the variant serves this problem on this target; else the first reason why not.
  const char* (*refusal)(const Problem&, const Target&);
  std::size_t (*workspace_size)(const Problem&, const Target&);
  void (*run)(const Problem&, const Target&);
  /// Archs on which `k3 check --full` has passed, between spaces: "avx2 avx3", "sm_90a".
  const char* verified_on;
  /// CUDA: archs that this variant is compiled for, between spaces; null for all of the build.
  const char* only_archs = nullptr;
};

/// An op: its name and its variants, best first.
template <class Problem>
struct Op {
  const char* name;
  std::span<const Kernel<Problem>> kernels;
};

/// `refusal` of a variant that serves every call its op's contract allows.
template <class Problem>
const char* accepts_all(const Problem&, const Target&) {
  return nullptr;
}

/// `workspace_size` of a variant without scratch memory.
template <class Problem>
std::size_t needs_no_workspace(const Problem&, const Target&) {
  return 0;
}

/// The parts of `select` that do not depend on the problem's type.
namespace dispatch {

/// Resolves kAuto, threads, arch and pdl for tensors on `device`.
/// @throws ContractError where ctx asks for what these tensors or this machine cannot give,
/// UnsupportedError where this build has no CUDA.
Target resolve(const char* op, const ExecContext& ctx, Device device);

/// The variant that the call asks for: ctx.variant, else what K3_FORCE says for this op, if
/// anything.
/// @throws ContractError where K3_FORCE is malformed, or names an op or a variant of this op that
/// the build has not
std::optional<std::string> forced_variant(const char* op, const ExecContext& ctx);

/// True where an environment variable is set to something but 0.
bool flag_is_set(const char* variable);
bool verbose();
/// A line on stderr under K3_VERBOSE=1.
void report(const char* op, const char* text);
void report_refusal(const char* op, Backend backend, const char* variant, const char* reason);
void report_choice(const char* op, const Target& target, const char* variant);

[[noreturn]] void throw_unsupported(const char* op, const Target& target,
                                    const std::string& refusals);
/// @throws ContractError where the workspace is too small or misaligned.
void check_workspace(const char* op, const Target& target, std::size_t needed);

/// Rows of `capabilities()` for one variant: one per arch that it is compiled for.
void append_rows(std::vector<Capability>& rows, const char* op, Backend backend,
                 const char* variant, const char* conditions, const char* verified_on,
                 const char* only_archs);

}  // namespace dispatch

/// The first kernel of the list that serves the problem on this target. Says under K3_VERBOSE=1
/// what was refused and why, and what was chosen.
/// @throws UnsupportedError listing each candidate with its first failing condition.
template <class Problem>
const Kernel<Problem>& select(const Op<Problem>& op, const Problem& problem, const Target& target,
                              const ExecContext& ctx) {
  const auto forced = dispatch::forced_variant(op.name, ctx);
  std::string refusals;
  for (const auto& kernel : op.kernels) {
    const char* reason = nullptr;
    if (forced && *forced != kernel.variant)
      reason = "another variant is asked for by name";
    else if (kernel.backend != target.backend)
      reason = "other backend";
    else if (target.backend == Backend::kCuda)
      reason = dispatch::image_refusal(target.arch, kernel.only_archs);
    if (reason == nullptr) reason = kernel.refusal(problem, target);
    if (reason == nullptr) {
      dispatch::report_choice(op.name, target, kernel.variant);
      return kernel;
    }
    dispatch::report_refusal(op.name, kernel.backend, kernel.variant, reason);
    refusals +=
        std::string("\n  ") + name_of(kernel.backend) + ":" + kernel.variant + ": " + reason;
  }
  if (forced && std::none_of(op.kernels.begin(), op.kernels.end(),
                             [&](const auto& kernel) { return *forced == kernel.variant; }))
    Contract(op.name, Purpose::kRun)
        .fail("variant", "must be one that `k3 ops` prints for this op", *forced);
  dispatch::throw_unsupported(op.name, target, refusals);
}

/// An op's entry point: check the contract, resolve, select, check the workspace, run.
template <class Problem, class Args>
void run_op(const Op<Problem>& op, std::span<const ArgRule<Args>> rules, const Args& args,
            const ExecContext& ctx) {
  const Problem problem = check(args, Purpose::kRun);
  const Target target = dispatch::resolve(op.name, ctx, problem.device);
  if constexpr (requires(Problem p) { index_lists(p); })
    if (dispatch::debug_checks()) debug_check_values(op.name, problem, target);
  const auto& kernel = select(op, problem, target, ctx);
  const std::size_t bytes = kernel.workspace_size(problem, target);
  dispatch::check_workspace(op.name, target, bytes);
  if (bytes > 0) {
    const Contract contract(op.name, Purpose::kRun);
    const ConstTensorView workspace(target.workspace.data, DType::kU8,
                                    {static_cast<std::int64_t>(bytes)}, target.device);
    for (const auto& rule : rules)
      contract.no_overlap("workspace", workspace, rule.name, rule.view(args));
  }
  kernel.run(problem, target);
}

/// Enough for every variant that these shapes could run on: which one it will be may depend on the
/// alignment of pointers that do not exist yet.
template <class Problem, class Args>
std::size_t workspace_size_of(const Op<Problem>& op, const Args& args, const ExecContext& ctx) {
  const Problem problem = check(args, Purpose::kPlan);
  const Target target = dispatch::resolve(op.name, ctx, problem.device);
  std::size_t bytes = 0;
  for (const auto& kernel : op.kernels)
    if (kernel.backend == target.backend)
      bytes = std::max(bytes, kernel.workspace_size(problem, target));
  return bytes;
}

template <class Problem>
void append_rows(const Op<Problem>& op, std::vector<Capability>& rows) {
  for (const auto& kernel : op.kernels)
    dispatch::append_rows(rows, op.name, kernel.backend, kernel.variant, kernel.conditions,
                          kernel.verified_on, kernel.only_archs);
}

}  // namespace k3
