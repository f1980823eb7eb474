// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/moe_align.h"

#include "contract/moe_align.h"
#include "cpu/moe_align.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/moe_align/moe_align.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MoeAlignProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "one_token",
     .conditions = "one token",
     .refusal = cuda::moe_align_one_token_refusal,
     .workspace_size = needs_no_workspace<MoeAlignProblem>,
     .run = cuda::moe_align_one_token,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "one_launch",
     .conditions = "any number of tokens but one, up to 4096 slots and 1024 experts",
     .refusal = cuda::moe_align_one_launch_refusal,
     .workspace_size = needs_no_workspace<MoeAlignProblem>,
     .run = cuda::moe_align_one_launch,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "three_launches",
     .conditions = "any number of tokens but one",
     .refusal = cuda::moe_align_three_launches_refusal,
     .workspace_size = cuda::moe_align_three_launches_workspace_size,
     .run = cuda::moe_align_three_launches,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeAlignProblem>,
     .workspace_size = needs_no_workspace<MoeAlignProblem>,
     .run = cpu::moe_align,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MoeAlignProblem> kOp = {"moe_align", kKernels};

}  // namespace

const OpEntry moe_align_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void moe_align(const MoeAlignArgs& args, const ExecContext& ctx) {
  run_op(kOp, moe_align_args(), args, ctx);
}

std::size_t moe_align_workspace_size(const MoeAlignArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
