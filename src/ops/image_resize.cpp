// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/image_resize.h"

#include "contract/image_resize.h"
#include "cpu/image_resize.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/image_resize/image_resize.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<ImageResizeProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "tile",
     .conditions = "height and width shrink to a third at most, to an eighth where out has more "
                   "than 2^21 elements; an image spans less than 2^31 bytes",
     .refusal = cuda::image_resize_tile_refusal,
     .workspace_size = needs_no_workspace<ImageResizeProblem>,
     .run = cuda::image_resize_tile,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "two_pass",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<ImageResizeProblem>,
     .workspace_size = cuda::image_resize_two_pass_workspace,
     .run = cuda::image_resize_two_pass,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "simd",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<ImageResizeProblem>,
     .workspace_size = cpu::image_resize_workspace,
     .run = cpu::image_resize,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<ImageResizeProblem> kOp = {"image_resize", kKernels};

}  // namespace

const OpEntry image_resize_entry = {[](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void image_resize(const ImageResizeArgs& args, const ExecContext& ctx) {
  run_op(kOp, image_resize_args(), args, ctx);
}

std::size_t image_resize_workspace_size(const ImageResizeArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
