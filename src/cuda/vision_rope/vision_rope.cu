// SPDX-License-Identifier: Apache-2.0
#include "cuda/vision_rope/vision_rope.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/vision_rope/kernel.cuh"

namespace k3::cuda {
namespace {

constexpr std::int64_t kMaxUnits = (std::int64_t{1} << 31) - 1;

/// Problems past 2^31 units take several launches.
template <class T, int kPairs>
cudaError_t launch_all(const VisionRopeProblem& problem, const Target& target) {
  const std::int64_t head_units = problem.D / (2 * kPairs);
  const std::int64_t max_heads = std::min<std::int64_t>(problem.H, kMaxUnits / head_units);
  const std::int64_t max_tokens = kMaxUnits / (max_heads * head_units);
  RopeParams p;
  p.freqs_stride = problem.freqs_stride;
  p.head_units = static_cast<std::uint32_t>(head_units);
  p.by_head_units = Divider(p.head_units);
  for (std::int64_t h = 0; h < problem.H; h += max_heads) {
    p.token_units = static_cast<std::uint32_t>(std::min(max_heads, problem.H - h) * head_units);
    p.by_token_units = Divider(p.token_units);
    for (std::int64_t t = 0; t < problem.T; t += max_tokens) {
      const auto part = [&](const auto& x) {
        return RopeTensor{static_cast<std::uint16_t*>(const_cast<void*>(x.data)) + t * x.stride_t +
                              h * x.stride_h,
                          x.stride_t, x.stride_h};
      };
      p.q = part(problem.q);
      p.k = part(problem.k);
      p.q_out = part(problem.q_out);
      p.k_out = part(problem.k_out);
      p.freqs = problem.freqs + t * problem.freqs_stride;
      p.num_units = static_cast<std::uint32_t>(std::min(max_tokens, problem.T - t) * p.token_units);
      LaunchConfig config = launch_config(target);
      config.grid = dim3((p.num_units - 1) / kRopeThreads + 1);
      config.block = dim3(kRopeThreads);
      const cudaError_t error = launch(vision_rope_kernel<T, kPairs>, config, p);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

template <int kPairs>
void run(const VisionRopeProblem& p, const Target& target) {
  if (p.empty()) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  if (p.dtype == DType::kBF16)
    K3_CUDA_CHECK((launch_all<bf16, kPairs>(p, target)));
  else
    K3_CUDA_CHECK((launch_all<f16, kPairs>(p, target)));
}

template <class Heads>
bool vectors_aligned(const VisionRopeProblem& p, const Heads& x) {
  return rows_aligned(x.data, p.dtype, 16, p.T > 1 ? x.stride_t : 0, x.stride_h);
}

}  // namespace

const char* vision_rope_vec8_refusal(const VisionRopeProblem& p, const Target&) {
  if (p.D % 8 != 0) return "D is not a multiple of 8";
  if (!vectors_aligned(p, p.q)) return "q or its strides are not aligned to 16 bytes";
  if (!vectors_aligned(p, p.k)) return "k or its strides are not aligned to 16 bytes";
  if (!vectors_aligned(p, p.q_out)) return "q_out or its strides are not aligned to 16 bytes";
  if (!vectors_aligned(p, p.k_out)) return "k_out or its strides are not aligned to 16 bytes";
  if (!rows_aligned(p.freqs, DType::kF32, 16, p.T > 1 ? p.freqs_stride : 0))
    return "freqs or its row stride is not aligned to 16 bytes";
  return nullptr;
}

void vision_rope_vec8(const VisionRopeProblem& problem, const Target& target) {
  run<4>(problem, target);
}
void vision_rope_pair(const VisionRopeProblem& problem, const Target& target) {
  run<1>(problem, target);
}

}  // namespace k3::cuda
