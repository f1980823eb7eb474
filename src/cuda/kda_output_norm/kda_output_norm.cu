// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_output_norm/kda_output_norm.h"

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/pdl.cuh"
#include "cuda/kda/step.cuh"

/// One warp a (token, head): four channels, one T128 group, in a lane. No barrier, and a warp reads
/// its row before it writes it, so out may be raw.
namespace k3::cuda {
namespace {

constexpr int kWarps = 8;  ///< of a CTA

template <class Access>
__global__ __launch_bounds__(32 * kWarps) void kda_output_norm_kernel(
    const __grid_constant__ KdaOutputNormProblem p) {
  pdl_launch_dependents();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t task = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (task >= std::int64_t{p.T} * p.H) return;
  const std::int64_t t = task / p.H;
  const std::int64_t column = (task - t * p.H) * kHeadDim + 4 * lane;
  pdl_wait();
  const float4 o = widen(Access::load(p.raw + t * p.raw_stride + column));
  const float4 logits = widen(Access::load(p.gate + t * p.gate_stride + column));
  const float4 weight = Access::load(p.weight + 4 * lane);
  const float squares = warp::sum(t128_group(o, o));
  const float4 gate = map(logits, sigmoid) * weight;
  Access::store(p.out + t * p.out_stride + column,
                narrow((o * inverse_rms(squares, p.eps)) * gate));
}

template <bool kVector>
void run(const KdaOutputNormProblem& p, const Target& target) {
  const std::int64_t tasks = std::int64_t{p.T} * p.H;
  if (tasks == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>((tasks - 1) / kWarps + 1));
  config.block = dim3(32 * kWarps);
  K3_CUDA_CHECK(launch(kda_output_norm_kernel<QuadAccess<kVector>>, config, p));
}

}  // namespace

const char* kda_output_norm_vec4_refusal(const KdaOutputNormProblem& p, const Target&) {
  if (!quads_aligned(p.raw, DType::kBF16, p.raw_stride))
    return "raw or its row stride is not aligned to 8 bytes";
  if (!quads_aligned(p.gate, DType::kBF16, p.gate_stride))
    return "gate or its row stride is not aligned to 8 bytes";
  if (!quads_aligned(p.out, DType::kBF16, p.out_stride))
    return "out or its row stride is not aligned to 8 bytes";
  if (!is_aligned(p.weight, 16)) return "weight is not aligned to 16 bytes";
  return nullptr;
}

void kda_output_norm_vec4(const KdaOutputNormProblem& p, const Target& target) {
  run<true>(p, target);
}
void kda_output_norm_scalar(const KdaOutputNormProblem& p, const Target& target) {
  run<false>(p, target);
}

}  // namespace k3::cuda
