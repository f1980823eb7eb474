// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_replay_commit/kda_replay_commit.h"

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/kda_replay_commit/kernel.cuh"

namespace k3::cuda {
namespace {

constexpr int kMaxGridYZ = 65535;
/// CTAs that prefetch, since they may start before the previous grid ends: one on each of 132 SMs.
constexpr unsigned kFirstCtas = 132;

template <class Traits>
cudaError_t launch_commit(const KdaReplayCommitProblem& p, const Target& target) {
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(p.HV), static_cast<unsigned>(p.B),
                     static_cast<unsigned>(p.num_layers));
  config.block = dim3(Traits::kNumThreads);
  config.dynamic_smem_bytes = sizeof(CommitShared<Traits>);
  return launch(kda_replay_commit_kernel<Traits>, config, p, target.pdl ? kFirstCtas : 0U);
}

template <class StateT, bool kVector>
cudaError_t launch_for_ring(const KdaReplayCommitProblem& p, const Target& target) {
  return p.ring_kv_dtype == DType::kBF16
             ? launch_commit<CommitTraits<StateT, bf16, kVector>>(p, target)
             : launch_commit<CommitTraits<StateT, float, kVector>>(p, target);
}

template <bool kVector>
void run(const KdaReplayCommitProblem& p, const Target& target) {
  if (p.B == 0 || p.num_layers == 0 || p.L == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(p.state_dtype == DType::kF32 ? (launch_for_ring<float, kVector>(p, target))
                                             : (launch_for_ring<bf16, kVector>(p, target)));
}

}  // namespace

const char* kda_replay_commit_scalar_refusal(const KdaReplayCommitProblem& p, const Target&) {
  if (p.B > kMaxGridYZ) return "more than 65535 requests";
  if (p.num_layers > kMaxGridYZ) return "more than 65535 layers";
  return nullptr;
}

const char* kda_replay_commit_vec4_refusal(const KdaReplayCommitProblem& p, const Target& target) {
  if (const char* reason = kda_replay_commit_scalar_refusal(p, target)) return reason;
  if (!rows_aligned(p.state, p.state_dtype, 16, p.state_layer_stride, p.state_slot_stride))
    return "state or its layer or slot stride is not aligned to 16 bytes";
  if (!quads_aligned(p.ring_k, p.ring_kv_dtype, p.ring_k_layer_stride, p.ring_k_row_stride) ||
      !quads_aligned(p.ring_v, p.ring_kv_dtype, p.ring_v_layer_stride, p.ring_v_row_stride) ||
      !quads_aligned(p.ring_g, p.ring_g_dtype, p.ring_g_layer_stride, p.ring_g_row_stride))
    return "ring_k, ring_v or ring_g or a stride of theirs is not aligned to four elements";
  if (!quads_aligned(p.conv_states, DType::kBF16, p.conv_layer_stride, p.conv_slot_stride,
                     p.conv_tap_stride))
    return "conv_states or a stride of its is not aligned to four elements";
  if (!quads_aligned(p.conv_scratch, DType::kBF16, p.scratch_layer_stride, p.scratch_row_stride,
                     p.scratch_token_stride, p.scratch_tap_stride))
    return "conv_scratch or a stride of its is not aligned to four elements";
  if (!quads_aligned(p.dt_bias, DType::kF32, p.dt_bias_layer_stride))
    return "dt_bias or its layer stride is not aligned to four elements";
  return nullptr;
}

void kda_replay_commit_vec4(const KdaReplayCommitProblem& p, const Target& target) {
  run<true>(p, target);
}
void kda_replay_commit_scalar(const KdaReplayCommitProblem& p, const Target& target) {
  run<false>(p, target);
}

}  // namespace k3::cuda
