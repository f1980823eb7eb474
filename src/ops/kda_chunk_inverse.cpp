// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_chunk_inverse.h"

#include "contract/kda_chunk_inverse.h"
#include "cpu/kda_chunk_inverse.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/kda_chunk_inverse/kda_chunk_inverse.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<KdaChunkInverseProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "fp32",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaChunkInverseProblem>,
     .workspace_size = needs_no_workspace<KdaChunkInverseProblem>,
     .run = cuda::kda_chunk_inverse,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaChunkInverseProblem>,
     .workspace_size = needs_no_workspace<KdaChunkInverseProblem>,
     .run = cpu::kda_chunk_inverse,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<KdaChunkInverseProblem> kOp = {"kda_chunk_inverse", kKernels};

}  // namespace

const OpEntry kda_chunk_inverse_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void kda_chunk_inverse(const KdaChunkInverseArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_chunk_inverse_args(), args, ctx);
}

std::size_t kda_chunk_inverse_workspace_size(const KdaChunkInverseArgs& args,
                                             const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
