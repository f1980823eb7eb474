// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_fused_decode.h"

#include "cpu/kernels.h"
#include "ops/kernels.h"

namespace k3 {
namespace {

constexpr const char* kOp = "kda_fused_decode";

constexpr Kernel<KdaFusedDecodeProblem> kKernels[] = {
    {Backend::kCpu, "streaming", "any call that meets the contract",
     accepts_all<KdaFusedDecodeProblem>, needs_no_workspace<KdaFusedDecodeProblem>,
     cpu::kda_fused_decode},
};

}  // namespace

std::span<const Kernel<KdaFusedDecodeProblem>> kda_fused_decode_kernels() { return kKernels; }

void kda_fused_decode(const KdaFusedDecodeArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_fused_decode_kernels(), check(args), ctx);
}

std::size_t kda_fused_decode_workspace_size(const KdaFusedDecodeArgs& args,
                                            const ExecContext& ctx) {
  return workspace_size_of(kOp, kda_fused_decode_kernels(), check(args), ctx);
}

}  // namespace k3
