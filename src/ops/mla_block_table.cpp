// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/mla_block_table.h"

#include "contract/mla_block_table.h"
#include "cpu/mla_block_table.h"
#include "dispatch/debug_integers.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/mla_block_table/mla_block_table.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<MlaBlockTableProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "gather",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MlaBlockTableProblem>,
     .workspace_size = needs_no_workspace<MlaBlockTableProblem>,
     .run = cuda::mla_block_table,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "loop",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<MlaBlockTableProblem>,
     .workspace_size = needs_no_workspace<MlaBlockTableProblem>,
     .run = cpu::mla_block_table,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<MlaBlockTableProblem> kOp = {"mla_block_table", kKernels};

}  // namespace

const OpEntry mla_block_table_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void mla_block_table(const MlaBlockTableArgs& args, const ExecContext& ctx) {
  run_op(kOp, mla_block_table_args(), args, ctx);
}

std::size_t mla_block_table_workspace_size(const MlaBlockTableArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
