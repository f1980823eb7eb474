// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/situ_and_mul.h"

#include "contract/situ_and_mul.h"
#include "cpu/situ_and_mul.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/situ_and_mul/situ_and_mul.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<SituAndMulProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec8",
     .conditions = "D and row strides multiples of 8, pointers aligned to 16 bytes",
     .refusal = cuda::situ_and_mul_vec8_refusal,
     .workspace_size = needs_no_workspace<SituAndMulProblem>,
     .run = cuda::situ_and_mul_vec8,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<SituAndMulProblem>,
     .workspace_size = needs_no_workspace<SituAndMulProblem>,
     .run = cuda::situ_and_mul_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<SituAndMulProblem>,
     .workspace_size = needs_no_workspace<SituAndMulProblem>,
     .run = cpu::situ_and_mul,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<SituAndMulProblem> kOp = {"situ_and_mul", kKernels};

}  // namespace

const OpEntry situ_and_mul_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void situ_and_mul(const SituAndMulArgs& args, const ExecContext& ctx) {
  run_op(kOp, situ_and_mul_args(), args, ctx);
}

std::size_t situ_and_mul_workspace_size(const SituAndMulArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
