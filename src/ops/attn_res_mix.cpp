// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/attn_res_mix.h"

#include "contract/attn_res_mix.h"
#include "cpu/attn_res_mix.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/attn_res_mix/attn_res_mix.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<AttnResMixProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec8",
     .conditions = "H <= 8192, at most 8 bank rows, T < 2^31, rows and strides aligned to 16 bytes",
     .refusal = cuda::attn_res_mix_vec8_refusal,
     .workspace_size = needs_no_workspace<AttnResMixProblem>,
     .run = cuda::attn_res_mix_vec8,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "general",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<AttnResMixProblem>,
     .workspace_size = needs_no_workspace<AttnResMixProblem>,
     .run = cuda::attn_res_mix_general,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<AttnResMixProblem>,
     .workspace_size = cpu::attn_res_mix_workspace_size,
     .run = cpu::attn_res_mix,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<AttnResMixProblem> kOp = {"attn_res_mix", kKernels};

}  // namespace

const OpEntry attn_res_mix_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void attn_res_mix(const AttnResMixArgs& args, const ExecContext& ctx) {
  run_op(kOp, attn_res_mix_args(), args, ctx);
}

std::size_t attn_res_mix_workspace_size(const AttnResMixArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
