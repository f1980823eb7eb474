// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/kda_decode/kda_decode.h"
#include "cuda/kda_decode/kernel.cuh"

namespace k3::cuda {
namespace {

template <class Traits>
cudaError_t launch_decode(const KdaFusedDecodeProblem& p, const Target& target, bool prefetch) {
  LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(p.B) * Traits::kClusterSize, static_cast<unsigned>(p.H));
  config.block = dim3(Traits::kNumThreads);
  config.cluster_size = Traits::kHasCluster ? Traits::kClusterSize : 1;
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  return launch(kda_decode_kernel<Traits>, config, p, prefetch && target.pdl);
}

template <class StateT, bool kVector, bool kStreaming>
cudaError_t launch_warps(const KdaFusedDecodeProblem& p, const Target& target, int warps, bool prefetch) {
  switch (warps) {
#define C(id, W, NB, A) case id: return launch_decode<DecodeTraits<KdaFusedDecodeProblem, StateT, W, NB, A, kVector, kStreaming>>(p, target, prefetch);
    C(411, 4, 1, 1)
    C(811, 8, 1, 1)
    C(422, 4, 2, 2)
    C(842, 8, 4, 2)
    C(844, 8, 4, 4)
    C(841, 8, 4, 1)
    C(1622, 16, 2, 2)
    C(822, 8, 2, 2)
    C(482, 4, 8, 2)
    C(484, 4, 8, 4)
    default: return cudaErrorInvalidValue;
  }
}

#ifdef NOPE
#endif
template <bool kVector>
void run(const KdaFusedDecodeProblem& p, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  if (p.B == 0) return;
  const char* e = std::getenv("PROBE");
  int warps = 411, streaming = 1, prefetch = 1;
  if (e) sscanf(e, "%d,%d,%d", &warps, &streaming, &prefetch);
  if (p.state_dtype == DType::kF32)
    K3_CUDA_CHECK((streaming ? launch_warps<float, kVector, true>(p, target, warps, prefetch)
                            : launch_warps<float, kVector, false>(p, target, warps, prefetch)));
}

bool aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

const char* kda_fused_decode_vec4_refusal(const KdaFusedDecodeProblem& p, const Target&) {
  const std::size_t state_quad = 4 * size_of(p.state_dtype);
  if (!aligned(p.state, 16) || p.state_slot_stride * size_of(p.state_dtype) % 16 != 0)
    return "state or its slot stride is not aligned to 16 bytes";
  if (!aligned(p.conv_states, 8) || p.conv_slot_stride % 4 != 0 || p.conv_tap_stride % 4 != 0)
    return "conv_states or its slot or tap stride is not aligned to 8 bytes";
  if (!aligned(p.mixed_qkv, 8) || p.mixed_qkv_stride % 4 != 0)
    return "mixed_qkv or its row stride is not aligned to 8 bytes";
  if (!aligned(p.g, 8) || p.g_stride % 4 != 0)
    return "g or its row stride is not aligned to 8 bytes";
  if (!aligned(p.onorm_gate, 8) || p.onorm_gate_stride % 4 != 0)
    return "onorm_gate or its row stride is not aligned to 8 bytes";
  if (!aligned(p.conv_weight, 16) || p.conv_weight_stride % 4 != 0)
    return "conv_weight or its tap stride is not aligned to 16 bytes";
  if (!aligned(p.conv_bias, 16)) return "conv_bias is not aligned to 16 bytes";
  if (!aligned(p.dt_bias, 16)) return "dt_bias is not aligned to 16 bytes";
  if (!aligned(p.onorm_weight, 16)) return "onorm_weight is not aligned to 16 bytes";
  return nullptr;
}
const char* kda_fused_decode_scalar_refusal(const KdaFusedDecodeProblem&, const Target&) { return nullptr; }

void kda_fused_decode_vec4(const KdaFusedDecodeProblem& p, const Target& t) { run<true>(p, t); }
void kda_fused_decode_scalar(const KdaFusedDecodeProblem& p, const Target& t) { run<false>(p, t); }

}  // namespace k3::cuda
