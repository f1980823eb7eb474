// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_prefill.h"

#include "cpu/kernels.h"
#include "ops/kernels.h"

namespace k3 {
namespace {

constexpr const char* kOp = "kda_prefill";

constexpr Kernel<KdaPrefillProblem> kKernels[] = {
    {Backend::kCpu, "chunked", "any call that meets the contract", accepts_all<KdaPrefillProblem>,
     cpu::kda_prefill_workspace_size, cpu::kda_prefill},
};

}  // namespace

std::span<const Kernel<KdaPrefillProblem>> kda_prefill_kernels() { return kKernels; }

void kda_prefill(const KdaPrefillArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_prefill_kernels(), check(args), ctx);
}

std::size_t kda_prefill_workspace_size(const KdaPrefillArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, kda_prefill_kernels(), check(args), ctx);
}

}  // namespace k3
