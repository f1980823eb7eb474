// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/mla_cache_write_concat_q.h"

#include "contract/mla_cache_write_concat_q.h"
#include "cpu/mla_cache_write_concat_q.h"
#include "dispatch/debug_integers.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/mla_cache_write_concat_q/mla_cache_write_concat_q.h"
#endif

namespace k3 {
namespace {

using Problem = MlaCacheWriteConcatQProblem;

constexpr Kernel<Problem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vector",
     .conditions = "nope and rope multiples of 8 (fp8: of 16), rows aligned to 16 bytes",
     .refusal = cuda::mla_cache_write_concat_q_vector_refusal,
     .workspace_size = needs_no_workspace<Problem>,
     .run = cuda::mla_cache_write_concat_q_vector,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<Problem>,
     .workspace_size = needs_no_workspace<Problem>,
     .run = cuda::mla_cache_write_concat_q_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<Problem>,
     .workspace_size = needs_no_workspace<Problem>,
     .run = cpu::mla_cache_write_concat_q,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<Problem> kOp = {"mla_cache_write_concat_q", kKernels};

}  // namespace

const OpEntry mla_cache_write_concat_q_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void mla_cache_write_concat_q(const MlaCacheWriteConcatQArgs& args, const ExecContext& ctx) {
  run_op(kOp, mla_cache_write_concat_q_args(), args, ctx);
}

std::size_t mla_cache_write_concat_q_workspace_size(const MlaCacheWriteConcatQArgs& args,
                                                    const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
