// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/kda_decode/kernel.cuh"
#include "dispatch/kernel.h"

/// Host side of the decode kernel.
namespace k3::cuda {

/// `heads` are those of the state.
template <class Traits>
cudaError_t launch_decode(const typename Traits::Problem& p, int heads, DecodeEarly early,
                          const Target& target) {
  LaunchConfig config = launch_config(target);
  config.grid = grid_over_requests(static_cast<unsigned>(heads) * Traits::kClusterSize, p.B);
  config.block = dim3(Traits::kNumThreads);
  config.cluster_size = Traits::kHasCluster ? Traits::kClusterSize : 1;
  return launch(kda_decode_kernel<Traits>, config, p, target.pdl ? early : DecodeEarly::kNothing);
}

template <DecodeShape kShape, bool kVector, class Problem>
void run_decode(const Problem& p, int heads, DecodeEarly early, const Target& target) {
  if (p.B == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  if (p.state_dtype == DType::kF32)
    K3_CUDA_CHECK(
        (launch_decode<DecodeTraits<Problem, float, kShape, kVector>>(p, heads, early, target)));
  else
    K3_CUDA_CHECK(
        (launch_decode<DecodeTraits<Problem, bf16, kShape, kVector>>(p, heads, early, target)));
}

/// Null where quads of everything but the convolution's and norm's tensors are aligned.
template <class Problem>
const char* decode_alignment_refusal(const Problem& p) {
  // A CTA's rows are asked for in pieces of 16 bytes, whatever their dtype.
  if (!rows_aligned(p.state, p.state_dtype, 16, p.state_slot_stride))
    return "state or its slot stride is not aligned to 16 bytes";
  if (!quads_aligned(p.mixed_qkv, DType::kBF16, p.mixed_qkv_stride))
    return "mixed_qkv or its row stride is not aligned to 8 bytes";
  if (!quads_aligned(p.g, DType::kBF16, p.g_stride))
    return "g or its row stride is not aligned to 8 bytes";
  if (!is_aligned(p.dt_bias, 16)) return "dt_bias is not aligned to 16 bytes";
  return nullptr;
}

}  // namespace k3::cuda
