// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_verify/kda_verify.h"

#include <algorithm>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/kda_verify/kernel.cuh"

namespace k3::cuda {
namespace {

/// A head over four CTAs: for so few heads that most of the chip would stand idle.
using Split = VerifyShape<32, 1, 2, false>;
/// A head on 512 threads of an SM of its own.
using Wide = VerifyShape<128, 4, 2, false>;
/// Heads one after the other on 256 threads, two of them on an SM.
using Narrow = VerifyShape<128, 8, 1, true, 184, 72>;

constexpr std::int64_t kMaxSplit = 33;
/// Up to here the grid is on the chip before the previous one ends, and can ask for memory.
constexpr std::int64_t kMaxWide = 132;

template <class Traits>
cudaError_t launch_verify(const KdaVerifyProblem& p, const Target& target) {
  const std::int64_t heads = std::int64_t{p.N} * p.H;
  std::int64_t in_grid = heads;
  if (Traits::kPersistent) {
    int sms = 0;
    const cudaError_t error =
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, target.device.index);
    if (error != cudaSuccess) return error;
    in_grid = std::min<std::int64_t>(heads, std::int64_t{Traits::kMinCtas} * sms);
  }
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(in_grid * Traits::kClusterSize));
  config.block = dim3(Traits::kNumThreads);
  config.dynamic_smem_bytes = verify_shared_bytes<Traits>(p.max_query_len);
  config.cluster_size = Traits::kClusterSize;
  return launch(kda_verify_kernel<Traits>, config, p, static_cast<int>(in_grid / p.H),
                static_cast<int>(in_grid % p.H), target.pdl && heads <= kMaxWide);
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
  run<Narrow, true>(p, target);
}

void kda_verify_vec4(const KdaVerifyProblem& p, const Target& target) {
  const std::int64_t heads = std::int64_t{p.N} * p.H;
  if (heads <= kMaxSplit)
    kda_verify_split(p, target);
  else if (heads <= kMaxWide)
    kda_verify_wide(p, target);
  else
    kda_verify_narrow(p, target);
}

void kda_verify_scalar(const KdaVerifyProblem& p, const Target& target) {
  run<Narrow, false>(p, target);
}

}  // namespace k3::cuda
