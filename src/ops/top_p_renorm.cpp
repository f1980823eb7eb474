// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/top_p_renorm.h"

#include "contract/top_p_renorm.h"
#include "cpu/top_p_renorm.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/top_p_renorm/top_p_renorm.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<TopPRenormProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec4",
     .conditions = "V a multiple of 4, rows aligned to 16 bytes",
     .refusal = cuda::top_p_renorm_vec4_refusal,
     .workspace_size = needs_no_workspace<TopPRenormProblem>,
     .run = cuda::top_p_renorm_vec4,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<TopPRenormProblem>,
     .workspace_size = needs_no_workspace<TopPRenormProblem>,
     .run = cuda::top_p_renorm_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<TopPRenormProblem>,
     .workspace_size = needs_no_workspace<TopPRenormProblem>,
     .run = cpu::top_p_renorm,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<TopPRenormProblem> kOp = {"top_p_renorm", kKernels};

}  // namespace

const OpEntry top_p_renorm_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void top_p_renorm(const TopPRenormArgs& args, const ExecContext& ctx) {
  run_op(kOp, top_p_renorm_args(), args, ctx);
}

std::size_t top_p_renorm_workspace_size(const TopPRenormArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
