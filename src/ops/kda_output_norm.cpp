// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_output_norm.h"

#include "contract/kda_output_norm.h"
#include "cpu/kda_output_norm.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/kda_output_norm/kda_output_norm.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<KdaOutputNormProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec4",
     .conditions = "pointers and strides aligned to four elements",
     .refusal = cuda::kda_output_norm_vec4_refusal,
     .workspace_size = needs_no_workspace<KdaOutputNormProblem>,
     .run = cuda::kda_output_norm_vec4,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaOutputNormProblem>,
     .workspace_size = needs_no_workspace<KdaOutputNormProblem>,
     .run = cuda::kda_output_norm_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaOutputNormProblem>,
     .workspace_size = needs_no_workspace<KdaOutputNormProblem>,
     .run = cpu::kda_output_norm,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<KdaOutputNormProblem> kOp = {"kda_output_norm", kKernels};

}  // namespace

const OpEntry kda_output_norm_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void kda_output_norm(const KdaOutputNormArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_output_norm_args(), args, ctx);
}

std::size_t kda_output_norm_workspace_size(const KdaOutputNormArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
