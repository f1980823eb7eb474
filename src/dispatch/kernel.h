// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "dispatch/archs.h"
#include "k3/capability.h"
#include "k3/context.h"
#include "k3/tensor.h"

namespace k3 {

/// What a kernel may use: the context with its open choices made.
struct Target {
  Backend backend = Backend::kCpu;  ///< never kAuto
  Device device;
  int arch = 0;            ///< CUDA: 10 * major + minor
  int threads = 1;         ///< CPU
  void* stream = nullptr;  ///< CUDA
  bool pdl = false;        ///< asked for and possible on this chip
  Workspace workspace;
};

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
/// @throws UnsupportedError where the asked backend cannot reach these tensors.
Target resolve(const char* op, const ExecContext& ctx, Device device);

/// The variant that K3_FORCE names for this op, if any.
std::optional<std::string> forced_variant(const char* op);

bool verbose();
void report_refusal(const char* op, Backend backend, const char* variant, const char* reason);
void report_choice(const char* op, const Target& target, const char* variant);

[[noreturn]] void throw_unsupported(const char* op, const Target& target,
                                    const std::string& refusals);
/// @throws ContractError where the workspace is too small or misaligned.
void check_workspace(const char* op, const Target& target, std::size_t needed);

}  // namespace dispatch

/// The first kernel of the list that serves the problem on this target. Says under K3_VERBOSE=1
/// what was refused and why, and what was chosen.
/// @throws UnsupportedError listing each candidate with its first failing condition.
template <class Problem>
const Kernel<Problem>& select(const char* op, std::span<const Kernel<Problem>> kernels,
                              const Problem& problem, const Target& target) {
  const auto forced = dispatch::forced_variant(op);
  std::string refusals;
  for (const auto& kernel : kernels) {
    const char* reason = nullptr;
    if (forced && *forced != kernel.variant)
      reason = "K3_FORCE names another variant";
    else if (kernel.backend != target.backend)
      reason = "other backend";
    else if (target.backend == Backend::kCuda)
      reason = dispatch::cuda_image_refusal(target.arch);
    if (reason == nullptr) reason = kernel.refusal(problem, target);
    if (reason == nullptr) {
      dispatch::report_choice(op, target, kernel.variant);
      return kernel;
    }
    dispatch::report_refusal(op, kernel.backend, kernel.variant, reason);
    refusals +=
        std::string("\n  ") + name_of(kernel.backend) + ":" + kernel.variant + ": " + reason;
  }
  dispatch::throw_unsupported(op, target, refusals);
}

/// An op's entry point: check has happened; resolve, select, check the workspace, run.
template <class Problem>
void run_op(const char* op, std::span<const Kernel<Problem>> kernels, const Problem& problem,
            const ExecContext& ctx) {
  const Target target = dispatch::resolve(op, ctx, problem.device);
  const auto& kernel = select(op, kernels, problem, target);
  dispatch::check_workspace(op, target, kernel.workspace_size(problem, target));
  kernel.run(problem, target);
}

template <class Problem>
std::size_t workspace_size_of(const char* op, std::span<const Kernel<Problem>> kernels,
                              const Problem& problem, const ExecContext& ctx) {
  const Target target = dispatch::resolve(op, ctx, problem.device);
  return select(op, kernels, problem, target).workspace_size(problem, target);
}

}  // namespace k3
