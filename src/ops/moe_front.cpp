// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/moe_front.h"

#include "contract/moe_front.h"
#include "cpu/moe_front.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/moe_front/moe_front.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MoeFrontProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "cublaslt",
     .conditions = "libcublasLt is found; rows of hidden and of weight do not overlap",
     .refusal = cuda::moe_front_cublaslt_refusal,
     .workspace_size = cuda::moe_front_cublaslt_workspace_size,
     .run = cuda::moe_front_cublaslt,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "plain",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeFrontProblem>,
     .workspace_size = cuda::moe_front_plain_workspace_size,
     .run = cuda::moe_front_plain,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeFrontProblem>,
     .workspace_size = cpu::moe_front_workspace_size,
     .run = cpu::moe_front,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MoeFrontProblem> kOp = {"moe_front", kKernels};

constexpr Kernel<MoeFrontEpilogueProblem> kEpilogueKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "one_launch",
     .conditions = "896 experts, topk 16; L a multiple of 8; rows of merged and of routed aligned "
                   "to 16 bytes",
     .refusal = cuda::moe_front_epilogue_one_launch_refusal,
     .workspace_size = needs_no_workspace<MoeFrontEpilogueProblem>,
     .run = cuda::moe_front_epilogue_one_launch,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "two_launches",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeFrontEpilogueProblem>,
     .workspace_size = needs_no_workspace<MoeFrontEpilogueProblem>,
     .run = cuda::moe_front_epilogue_two_launches,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MoeFrontEpilogueProblem>,
     .workspace_size = needs_no_workspace<MoeFrontEpilogueProblem>,
     .run = cpu::moe_front_epilogue,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MoeFrontEpilogueProblem> kEpilogueOp = {"moe_front_epilogue", kEpilogueKernels};

}  // namespace

const OpEntry moe_front_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};
const OpEntry moe_front_epilogue_entry = {
    [](std::vector<Capability>& rows) { append_rows(kEpilogueOp, rows); }};

void moe_front(const MoeFrontArgs& args, const ExecContext& ctx) {
  run_op(kOp, moe_front_args(), args, ctx);
}

std::size_t moe_front_workspace_size(const MoeFrontArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

void moe_front_epilogue(const MoeFrontEpilogueArgs& args, const ExecContext& ctx) {
  run_op(kEpilogueOp, moe_front_epilogue_args(), args, ctx);
}

std::size_t moe_front_epilogue_workspace_size(const MoeFrontEpilogueArgs& args,
                                              const ExecContext& ctx) {
  return workspace_size_of(kEpilogueOp, args, ctx);
}

}  // namespace k3
