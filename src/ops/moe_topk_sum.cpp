// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/moe_topk_sum.h"

#include "contract/moe_topk_sum.h"
#include "cpu/moe_topk_sum.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/moe_sum/moe_topk_sum.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MoeTopkSumProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec4",
     .conditions = "H a multiple of 4, rows aligned to 8 bytes",
     .refusal = cuda::moe_topk_sum_vec4_refusal,
     .workspace_size = needs_no_workspace<MoeTopkSumProblem>,
     .run = cuda::moe_topk_sum_vec4,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeTopkSumProblem>,
     .workspace_size = needs_no_workspace<MoeTopkSumProblem>,
     .run = cuda::moe_topk_sum_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeTopkSumProblem>,
     .workspace_size = needs_no_workspace<MoeTopkSumProblem>,
     .run = cpu::moe_topk_sum,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MoeTopkSumProblem> kOp = {"moe_topk_sum", kKernels};

}  // namespace

const OpEntry moe_topk_sum_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void moe_topk_sum(const MoeTopkSumArgs& args, const ExecContext& ctx) {
  run_op(kOp, moe_topk_sum_args(), args, ctx);
}

std::size_t moe_topk_sum_workspace_size(const MoeTopkSumArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
