// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/vision_rope.h"

#include "contract/vision_rope.h"
#include "cpu/vision_rope.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/vision_rope/vision_rope.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<VisionRopeProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec8",
     .conditions =
         "D a multiple of 8; every row of q, k, freqs and the outputs aligned to 16 bytes",
     .refusal = cuda::vision_rope_vec8_refusal,
     .workspace_size = needs_no_workspace<VisionRopeProblem>,
     .run = cuda::vision_rope_vec8,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "pair",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<VisionRopeProblem>,
     .workspace_size = needs_no_workspace<VisionRopeProblem>,
     .run = cuda::vision_rope_pair,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<VisionRopeProblem>,
     .workspace_size = needs_no_workspace<VisionRopeProblem>,
     .run = cpu::vision_rope,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<VisionRopeProblem> kOp = {"vision_rope", kKernels};

}  // namespace

const OpEntry vision_rope_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void vision_rope(const VisionRopeArgs& args, const ExecContext& ctx) {
  run_op(kOp, vision_rope_args(), args, ctx);
}

std::size_t vision_rope_workspace_size(const VisionRopeArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
