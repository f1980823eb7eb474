// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_prefill.h"

#include "contract/kda_prefill.h"
#include "cpu/kda_prefill.h"
#if K3_WITH_CUDA
#include "cuda/kda_prefill/kda_prefill.h"
#endif
#include "dispatch/kernel.h"
#include "ops/all_ops.h"

namespace k3 {
namespace {

constexpr Kernel<KdaPrefillProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "wgmma",
     .conditions =
         "fewer than 2^31 chunks of 64 tokens and fewer than 2^30 sequences, each times heads",
     .refusal = cuda::kda_prefill_refusal,
     .workspace_size = cuda::kda_prefill_workspace_size,
     .run = cuda::kda_prefill_wgmma,
     .verified_on = "sm_90a",
     .only_archs = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "mma_sync",
     .conditions =
         "fewer than 2^31 chunks of 64 tokens and fewer than 2^30 sequences, each times heads",
     .refusal = cuda::kda_prefill_refusal,
     .workspace_size = cuda::kda_prefill_workspace_size,
     .run = cuda::kda_prefill_mma_sync,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "chunked",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaPrefillProblem>,
     .workspace_size = cpu::kda_prefill_workspace_size,
     .run = cpu::kda_prefill,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<KdaPrefillProblem> kOp = {"kda_prefill", kKernels};

}  // namespace

const OpEntry kda_prefill_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void kda_prefill(const KdaPrefillArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_prefill_args(), args, ctx);
}

std::size_t kda_prefill_workspace_size(const KdaPrefillArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
