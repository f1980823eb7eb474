// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_packed_decode.h"

#include "contract/kda_packed_decode.h"
#include "cpu/kda_packed_decode.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"

namespace k3 {
namespace {

constexpr Kernel<KdaPackedDecodeProblem> kKernels[] = {
    {.backend = Backend::kCpu,
     .variant = "streaming",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaPackedDecodeProblem>,
     .workspace_size = needs_no_workspace<KdaPackedDecodeProblem>,
     .run = cpu::kda_packed_decode,
     .verified_on = "ssse3 sse4 avx2"},
};
constexpr Op<KdaPackedDecodeProblem> kOp = {"kda_packed_decode", kKernels};

}  // namespace

const OpEntry kda_packed_decode_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void kda_packed_decode(const KdaPackedDecodeArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_packed_decode_args(), args, ctx);
}

std::size_t kda_packed_decode_workspace_size(const KdaPackedDecodeArgs& args,
                                             const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
