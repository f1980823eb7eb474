// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/moe_route_quant.h"

#include "contract/moe_route_quant.h"
#include "cpu/moe_route_quant.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/moe_route_quant/moe_route_quant.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MoeRouteQuantProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "one_launch",
     .conditions = "896 experts, topk 16, group_size 16, 32, 64, 128 or 256; rows of x aligned to "
                   "16 bytes, of x_q to 8",
     .refusal = cuda::moe_route_quant_one_launch_refusal,
     .workspace_size = needs_no_workspace<MoeRouteQuantProblem>,
     .run = cuda::moe_route_quant_one_launch,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "two_launches",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeRouteQuantProblem>,
     .workspace_size = needs_no_workspace<MoeRouteQuantProblem>,
     .run = cuda::moe_route_quant_two_launches,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeRouteQuantProblem>,
     .workspace_size = needs_no_workspace<MoeRouteQuantProblem>,
     .run = cpu::moe_route_quant,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MoeRouteQuantProblem> kOp = {"moe_route_quant", kKernels};

}  // namespace

const OpEntry moe_route_quant_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void moe_route_quant(const MoeRouteQuantArgs& args, const ExecContext& ctx) {
  run_op(kOp, moe_route_quant_args(), args, ctx);
}

std::size_t moe_route_quant_workspace_size(const MoeRouteQuantArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
