// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/kda_replay_commit.h"

#include "contract/kda_replay_commit.h"
#include "cpu/kda_replay_commit.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"
#if K3_WITH_CUDA
#include "cuda/kda_replay_commit/kda_replay_commit.h"
#endif

namespace k3 {
namespace {

constexpr Kernel<KdaReplayCommitProblem> kKernels[] = {
#if K3_WITH_CUDA
    {.backend = Backend::kCuda,
     .variant = "vec4",
     .conditions = "pointers and strides aligned to four elements, state to 16 bytes; "
                   "at most 65535 layers and requests",
     .refusal = cuda::kda_replay_commit_vec4_refusal,
     .workspace_size = needs_no_workspace<KdaReplayCommitProblem>,
     .run = cuda::kda_replay_commit_vec4,
     .verified_on = "sm_90a"},
    {.backend = Backend::kCuda,
     .variant = "scalar",
     .conditions = "at most 65535 layers and requests",
     .refusal = cuda::kda_replay_commit_scalar_refusal,
     .workspace_size = needs_no_workspace<KdaReplayCommitProblem>,
     .run = cuda::kda_replay_commit_scalar,
     .verified_on = "sm_90a"},
#endif
    {.backend = Backend::kCpu,
     .variant = "chain",
     .conditions = "any call that meets the contract",
     .refusal = accepts_all<KdaReplayCommitProblem>,
     .workspace_size = needs_no_workspace<KdaReplayCommitProblem>,
     .run = cpu::kda_replay_commit,
     .verified_on = "ssse3 sse4 avx2 avx3"},
};
constexpr Op<KdaReplayCommitProblem> kOp = {"kda_replay_commit", kKernels};

}  // namespace

const OpEntry kda_replay_commit_entry = {
    [](std::vector<Capability>& rows) { append_rows(kOp, rows); }};

void kda_replay_commit(const KdaReplayCommitArgs& args, const ExecContext& ctx) {
  run_op(kOp, kda_replay_commit_args(), args, ctx);
}

std::size_t kda_replay_commit_workspace_size(const KdaReplayCommitArgs& args,
                                             const ExecContext& ctx) {
  return workspace_size_of(kOp, args, ctx);
}

}  // namespace k3
