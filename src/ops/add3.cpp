// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/add3.h"

#include "contract/add3.h"
#include "cpu/add3.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/add3/add3.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<Add3Problem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec8",
     .conditions = "rows multiples of 8, aligned to 16 bytes",
     .refusal = cuda::add3_vec8_refusal,
     .workspace_size = needs_no_workspace<Add3Problem>,
     .run = cuda::add3_vec8,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<Add3Problem>,
     .workspace_size = needs_no_workspace<Add3Problem>,
     .run = cuda::add3_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<Add3Problem>,
     .workspace_size = needs_no_workspace<Add3Problem>,
     .run = cpu::add3,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<Add3Problem> kOp = {"add3", kKernels};

}  // namespace

const OpEntry add3_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void add3(const Add3Args& args, const ExecContext& ctx) { run_op(kOp, add3_args(), args, ctx); }

std::size_t add3_workspace_size(const Add3Args& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
