// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/situ_mul_quant.h"

#include "contract/situ_mul_quant.h"
#include "cpu/situ_mul_quant.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/situ_mul_quant/situ_mul_quant.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<SituMulQuantProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "live_rows",
     .conditions = "rows of input and output_q aligned to 16 bytes; at most 8192 experts, 2^30 "
                   "rows and strides below 2^31",
     .refusal = cuda::situ_mul_quant_live_rows_refusal,
     .workspace_size = needs_no_workspace<SituMulQuantProblem>,
     .run = cuda::situ_mul_quant_live_rows,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "warp_per_group",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<SituMulQuantProblem>,
     .workspace_size = needs_no_workspace<SituMulQuantProblem>,
     .run = cuda::situ_mul_quant_warp_per_group,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<SituMulQuantProblem>,
     .workspace_size = needs_no_workspace<SituMulQuantProblem>,
     .run = cpu::situ_mul_quant,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<SituMulQuantProblem> kOp = {"situ_mul_quant", kKernels};

}  // namespace

const OpEntry situ_mul_quant_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void situ_mul_quant(const SituMulQuantArgs& args, const ExecContext& ctx) {
  run_op(kOp, situ_mul_quant_args(), args, ctx);
}

std::size_t situ_mul_quant_workspace_size(const SituMulQuantArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
