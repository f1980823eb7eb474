// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_fused_decode.h"

#include "contract/kda_fused_decode.h"
#include "cpu/kda_fused_decode.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/kda_decode/kda_decode.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<KdaFusedDecodeProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec4",
     .conditions = "pointers and strides aligned to four elements, state to 16 bytes",
     .refusal = cuda::kda_fused_decode_vec4_refusal,
     .workspace_size = needs_no_workspace<KdaFusedDecodeProblem>,
     .run = cuda::kda_fused_decode_vec4,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaFusedDecodeProblem>,
     .workspace_size = needs_no_workspace<KdaFusedDecodeProblem>,
     .run = cuda::kda_fused_decode_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "streaming",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaFusedDecodeProblem>,
     .workspace_size = needs_no_workspace<KdaFusedDecodeProblem>,
     .run = cpu::kda_fused_decode,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<KdaFusedDecodeProblem> kOp = {"kda_fused_decode", kKernels};

}  // namespace

const OpEntry kda_fused_decode_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void kda_fused_decode(const KdaFusedDecodeArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_fused_decode_args(), args, ctx);
}

std::size_t kda_fused_decode_workspace_size(const KdaFusedDecodeArgs& args,
                                            const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
