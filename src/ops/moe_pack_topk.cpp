// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/moe_pack_topk.h"

#include "contract/moe_pack_topk.h"
#include "cpu/moe_pack_topk.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/moe_pack_topk/moe_pack_topk.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MoePackTopkProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec4",
     .conditions = "rows of whole quads, all aligned to 16 bytes",
     .refusal = cuda::moe_pack_topk_vec4_refusal,
     .workspace_size = needs_no_workspace<MoePackTopkProblem>,
     .run = cuda::moe_pack_topk_vec4,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoePackTopkProblem>,
     .workspace_size = needs_no_workspace<MoePackTopkProblem>,
     .run = cuda::moe_pack_topk_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoePackTopkProblem>,
     .workspace_size = needs_no_workspace<MoePackTopkProblem>,
     .run = cpu::moe_pack_topk,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MoePackTopkProblem> kOp = {"moe_pack_topk", kKernels};

}  // namespace

const OpEntry moe_pack_topk_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void moe_pack_topk(const MoePackTopkArgs& args, const ExecContext& ctx) {
  run_op(kOp, moe_pack_topk_args(), args, ctx);
}

std::size_t moe_pack_topk_workspace_size(const MoePackTopkArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
