// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/moe_route_topk.h"

#include "contract/moe_route_topk.h"
#include "cpu/moe_route_topk.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/moe_route_topk/moe_route_topk.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MoeRouteTopkProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "choose_16_of_896",
     .conditions = "896 experts, topk 16",
     .refusal = cuda::moe_route_topk_16_of_896_refusal,
     .workspace_size = needs_no_workspace<MoeRouteTopkProblem>,
     .run = cuda::moe_route_topk_16_of_896,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "general",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeRouteTopkProblem>,
     .workspace_size = needs_no_workspace<MoeRouteTopkProblem>,
     .run = cuda::moe_route_topk_general,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeRouteTopkProblem>,
     .workspace_size = needs_no_workspace<MoeRouteTopkProblem>,
     .run = cpu::moe_route_topk,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MoeRouteTopkProblem> kOp = {"moe_route_topk", kKernels};

}  // namespace

const OpEntry moe_route_topk_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void moe_route_topk(const MoeRouteTopkArgs& args, const ExecContext& ctx) {
  run_op(kOp, moe_route_topk_args(), args, ctx);
}

std::size_t moe_route_topk_workspace_size(const MoeRouteTopkArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
