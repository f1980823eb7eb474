// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_recompute_wu.h"

#include "contract/kda_recompute_wu.h"
#include "cpu/kda_recompute_wu.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/kda_recompute_wu/kda_recompute_wu.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<KdaRecomputeWuProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "mma",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaRecomputeWuProblem>,
     .workspace_size = needs_no_workspace<KdaRecomputeWuProblem>,
     .run = cuda::kda_recompute_wu,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaRecomputeWuProblem>,
     .workspace_size = needs_no_workspace<KdaRecomputeWuProblem>,
     .run = cpu::kda_recompute_wu,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<KdaRecomputeWuProblem> kOp = {"kda_recompute_wu", kKernels};

}  // namespace

const OpEntry kda_recompute_wu_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void kda_recompute_wu(const KdaRecomputeWuArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_recompute_wu_args(), args, ctx);
}

std::size_t kda_recompute_wu_workspace_size(const KdaRecomputeWuArgs& args,
                                            const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
