// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/tiny_gemm.h"

#include "contract/tiny_gemm.h"
#include "cpu/tiny_gemm.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/tiny_gemm/tiny_gemm.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<TinyGemmProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "columns",
     .conditions = "K a multiple of 8, at most 256; rows of x and w aligned to 16 bytes",
     .refusal = cuda::tiny_gemm_columns_refusal,
     .workspace_size = needs_no_workspace<TinyGemmProblem>,
     .run = cuda::tiny_gemm_columns,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "split_k",
     .conditions = "K a multiple of 8, at most 32768; rows of x and w aligned to 16 bytes",
     .refusal = cuda::tiny_gemm_split_k_refusal,
     .workspace_size = needs_no_workspace<TinyGemmProblem>,
     .run = cuda::tiny_gemm_split_k,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "general",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<TinyGemmProblem>,
     .workspace_size = needs_no_workspace<TinyGemmProblem>,
     .run = cuda::tiny_gemm_general,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<TinyGemmProblem>,
     .workspace_size = needs_no_workspace<TinyGemmProblem>,
     .run = cpu::tiny_gemm,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<TinyGemmProblem> kOp = {"tiny_gemm", kKernels};

}  // namespace

const OpEntry tiny_gemm_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void tiny_gemm(const TinyGemmArgs& args, const ExecContext& ctx) {
  run_op(kOp, tiny_gemm_args(), args, ctx);
}

std::size_t tiny_gemm_workspace_size(const TinyGemmArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
