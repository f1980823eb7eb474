// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_verify.h"

#include "contract/kda_verify.h"
#include "cpu/kda_verify.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/kda_verify/kda_verify.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<KdaVerifyProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec4",
     .conditions = "pointers and strides aligned to four elements, state to 16 bytes; takes split "
                   "or narrow by N * H",
     .refusal = cuda::kda_verify_vec4_refusal,
     .workspace_size = needs_no_workspace<KdaVerifyProblem>,
     .run = cuda::kda_verify_vec4,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "split",
     .conditions = "as vec4; four CTAs a head",
     .refusal = cuda::kda_verify_vec4_refusal,
     .workspace_size = needs_no_workspace<KdaVerifyProblem>,
     .run = cuda::kda_verify_split,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "wide",
     .conditions = "as vec4; 512 threads a head, by name only",
     .refusal = cuda::kda_verify_vec4_refusal,
     .workspace_size = needs_no_workspace<KdaVerifyProblem>,
     .run = cuda::kda_verify_wide,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "narrow",
     .conditions = "as vec4; 256 threads a head",
     .refusal = cuda::kda_verify_vec4_refusal,
     .workspace_size = needs_no_workspace<KdaVerifyProblem>,
     .run = cuda::kda_verify_narrow,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaVerifyProblem>,
     .workspace_size = needs_no_workspace<KdaVerifyProblem>,
     .run = cuda::kda_verify_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "row_blocks",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaVerifyProblem>,
     .workspace_size = needs_no_workspace<KdaVerifyProblem>,
     .run = cpu::kda_verify,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<KdaVerifyProblem> kOp = {"kda_verify", kKernels};

}  // namespace

const OpEntry kda_verify_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void kda_verify(const KdaVerifyArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_verify_args(), args, ctx);
}

std::size_t kda_verify_workspace_size(const KdaVerifyArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
