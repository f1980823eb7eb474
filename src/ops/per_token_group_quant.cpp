// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/per_token_group_quant.h"

#include "contract/per_token_group_quant.h"
#include "cpu/per_token_group_quant.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/per_token_group_quant/per_token_group_quant.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<PerTokenGroupQuantProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec16",
     .conditions = "group_size 16, 32, 64, 128 or 256; rows of input and "
                   "output_q aligned to 16 bytes",
     .refusal = cuda::per_token_group_quant_vec16_refusal,
     .workspace_size = needs_no_workspace<PerTokenGroupQuantProblem>,
     .run = cuda::per_token_group_quant_vec16,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "warp_per_group",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<PerTokenGroupQuantProblem>,
     .workspace_size = needs_no_workspace<PerTokenGroupQuantProblem>,
     .run = cuda::per_token_group_quant_warp_per_group,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<PerTokenGroupQuantProblem>,
     .workspace_size = needs_no_workspace<PerTokenGroupQuantProblem>,
     .run = cpu::per_token_group_quant,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<PerTokenGroupQuantProblem> kOp = {"per_token_group_quant", kKernels};

}  // namespace

const OpEntry per_token_group_quant_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void per_token_group_quant(const PerTokenGroupQuantArgs& args, const ExecContext& ctx) {
  run_op(kOp, per_token_group_quant_args(), args, ctx);
}

std::size_t per_token_group_quant_workspace_size(const PerTokenGroupQuantArgs& args,
                                                 const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
