// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/mla_output_gate.h"

#include "contract/mla_output_gate.h"
#include "cpu/mla_output_gate.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/mla_output_gate/mla_output_gate.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MlaOutputGateProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec8",
     .conditions = "rows of a multiple of 8 elements, their strides, too; pointers aligned to 16 "
                   "bytes",
     .refusal = cuda::mla_output_gate_vec8_refusal,
     .workspace_size = needs_no_workspace<MlaOutputGateProblem>,
     .run = cuda::mla_output_gate_vec8,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MlaOutputGateProblem>,
     .workspace_size = needs_no_workspace<MlaOutputGateProblem>,
     .run = cuda::mla_output_gate_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MlaOutputGateProblem>,
     .workspace_size = needs_no_workspace<MlaOutputGateProblem>,
     .run = cpu::mla_output_gate,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MlaOutputGateProblem> kOp = {"mla_output_gate", kKernels};

}  // namespace

const OpEntry mla_output_gate_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void mla_output_gate(const MlaOutputGateArgs& args, const ExecContext& ctx) {
  run_op(kOp, mla_output_gate_args(), args, ctx);
}

std::size_t mla_output_gate_workspace_size(const MlaOutputGateArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
