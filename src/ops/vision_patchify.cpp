// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/vision_patchify.h"

#include "contract/vision_patchify.h"
#include "cpu/vision_patchify.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/vision_patchify/vision_patchify.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<VisionPatchifyProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "pairs",
     .conditions =
         "f32 or bf16 image with contiguous rows, its width, patch_size and strides even; "
         "patches and out aligned to 4 elements",
     .refusal = cuda::vision_patchify_pairs_refusal,
     .workspace_size = needs_no_workspace<VisionPatchifyProblem>,
     .run = cuda::vision_patchify_pairs,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "quads",
     .conditions = "patches and out aligned to 4 elements",
     .refusal = cuda::vision_patchify_quads_refusal,
     .workspace_size = needs_no_workspace<VisionPatchifyProblem>,
     .run = cuda::vision_patchify_quads,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<VisionPatchifyProblem>,
     .workspace_size = needs_no_workspace<VisionPatchifyProblem>,
     .run = cuda::vision_patchify_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<VisionPatchifyProblem>,
     .workspace_size = needs_no_workspace<VisionPatchifyProblem>,
     .run = cpu::vision_patchify,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<VisionPatchifyProblem> kOp = {"vision_patchify", kKernels};

}  // namespace

const OpEntry vision_patchify_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void vision_patchify(const VisionPatchifyArgs& args, const ExecContext& ctx) {
  run_op(kOp, vision_patchify_args(), args, ctx);
}

std::size_t vision_patchify_workspace_size(const VisionPatchifyArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
