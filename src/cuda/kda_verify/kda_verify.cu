// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_verify/kda_verify.h"

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/kda_verify/kernel.cuh"

namespace k3::cuda {
namespace {

/// A head over four CTAs: for so few heads that most of the chip would stand idle.
using Split = VerifyShape<8, 32, 2, 1>;
/// A head on 256 threads, two heads on an SM that fill each other's waits.
using Narrow = VerifyShape<8, 128, 4, 2>;
/// The same while every head has an SM of its own.
using NarrowAlone = VerifyShape<8, 128, 4, 1>;
/// A head on 512 threads.
using Wide = VerifyShape<16, 128, 2, 1>;

constexpr std::int64_t kMaxSplit = 33;
/// Up to here the grid is on the chip before the previous one ends, and can ask for memory.
constexpr std::int64_t kMaxAlone = 132;

template <class Traits>
cudaError_t launch_verify(const KdaVerifyProblem& p, const Target& target) {
  LaunchConfig config;
  config.grid = grid_over_requests(static_cast<unsigned>(p.H) * Traits::kClusterSize, p.N);
  config.block = dim3(Traits::kNumThreads);
  config.dynamic_smem_bytes = verify_shared_bytes<Traits>(p.max_query_len);
  config.cluster_size = Traits::kClusterSize;
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  return launch(kda_verify_kernel<Traits>, config, p,
                target.pdl && std::int64_t{p.N} * p.H <= kMaxAlone);
}

template <class Shape, bool kVector>
void run(const KdaVerifyProblem& p, const Target& target) {
  if (p.N == 0 || p.tokens == 0 || p.max_query_len == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  if (p.state_dtype == DType::kF32)
    K3_CUDA_CHECK((launch_verify<VerifyTraits<float, Shape, kVector>>(p, target)));
  else
    K3_CUDA_CHECK((launch_verify<VerifyTraits<bf16, Shape, kVector>>(p, target)));
}

}  // namespace

const char* kda_verify_vec4_refusal(const KdaVerifyProblem& p, const Target&) {
  // A CTA's rows are asked for in pieces of 16 bytes, whatever their dtype.
  if (!rows_aligned(p.state, p.state_dtype, 16, p.state_slot_stride))
    return "state or its slot stride is not aligned to 16 bytes";
  if (!is_aligned(p.snapshots, 16) ||
      !quads_aligned(p.snapshots, p.state_dtype, p.snapshot_row_stride, p.snapshot_token_stride))
    return "snapshots are not aligned to 16 bytes, or their strides not to four elements";
  if (!quads_aligned(p.mixed_qkv, DType::kBF16, p.mixed_qkv_stride))
    return "mixed_qkv or its row stride is not aligned to 8 bytes";
  if (!quads_aligned(p.conv_states, DType::kBF16, p.conv_slot_stride, p.conv_tap_stride))
    return "conv_states or its slot or tap stride is not aligned to 8 bytes";
  if (!quads_aligned(p.conv_weight, DType::kF32, p.conv_weight_stride))
    return "conv_weight or its tap stride is not aligned to 16 bytes";
  if (!is_aligned(p.conv_bias, 16)) return "conv_bias is not aligned to 16 bytes";
  if (!quads_aligned(p.g, DType::kBF16, p.g_stride))
    return "g or its row stride is not aligned to 8 bytes";
  if (!is_aligned(p.dt_bias, 16)) return "dt_bias is not aligned to 16 bytes";
  if (!quads_aligned(p.onorm_gate, DType::kBF16, p.onorm_gate_stride))
    return "onorm_gate or its row stride is not aligned to 8 bytes";
  if (!is_aligned(p.onorm_weight, 16)) return "onorm_weight is not aligned to 16 bytes";
  if (!quads_aligned(p.ring_k, DType::kBF16, p.ring_k_row_stride) ||
      !quads_aligned(p.ring_v, DType::kBF16, p.ring_v_row_stride) || !is_aligned(p.ring_g, 16) ||
      p.ring_g_row_stride % 4 != 0)
    return "ring_k, ring_v or ring_g or a row stride of theirs is not aligned to four elements";
  if (!quads_aligned(p.conv_scratch, DType::kBF16, p.conv_scratch_row_stride,
                     p.conv_scratch_token_stride, p.conv_scratch_tap_stride))
    return "conv_scratch or a stride of its is not aligned to 8 bytes";
  if (!quads_aligned(p.out, DType::kBF16, p.out_stride))
    return "out or its row stride is not aligned to 8 bytes";
  return nullptr;
}

void kda_verify_split(const KdaVerifyProblem& p, const Target& target) {
  run<Split, true>(p, target);
}
void kda_verify_wide(const KdaVerifyProblem& p, const Target& target) {
  run<Wide, true>(p, target);
}
void kda_verify_narrow(const KdaVerifyProblem& p, const Target& target) {
  if (std::int64_t{p.N} * p.H <= kMaxAlone)
    run<NarrowAlone, true>(p, target);
  else
    run<Narrow, true>(p, target);
}

/// 512 threads never won on an H200 and are taken by name only.
void kda_verify_vec4(const KdaVerifyProblem& p, const Target& target) {
  if (std::int64_t{p.N} * p.H <= kMaxSplit)
    kda_verify_split(p, target);
  else
    kda_verify_narrow(p, target);
}

void kda_verify_scalar(const KdaVerifyProblem& p, const Target& target) {
  run<Narrow, false>(p, target);
}

}  // namespace k3::cuda
