// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/moe_finalize.h"

#include "contract/moe_finalize.h"
#include "cpu/moe_finalize.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/moe_sum/moe_finalize.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MoeFinalizeProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec8",
     .conditions = "H a multiple of 8, rows aligned to 16 bytes",
     .refusal = cuda::moe_finalize_vec8_refusal,
     .workspace_size = needs_no_workspace<MoeFinalizeProblem>,
     .run = cuda::moe_finalize_vec8,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeFinalizeProblem>,
     .workspace_size = needs_no_workspace<MoeFinalizeProblem>,
     .run = cuda::moe_finalize_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeFinalizeProblem>,
     .workspace_size = needs_no_workspace<MoeFinalizeProblem>,
     .run = cpu::moe_finalize,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MoeFinalizeProblem> kOp = {"moe_finalize", kKernels};

}  // namespace

const OpEntry moe_finalize_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void moe_finalize(const MoeFinalizeArgs& args, const ExecContext& ctx) {
  run_op(kOp, moe_finalize_args(), args, ctx);
}

std::size_t moe_finalize_workspace_size(const MoeFinalizeArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
