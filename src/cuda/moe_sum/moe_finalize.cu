// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_sum/moe_finalize.h"

#include <algorithm>
#include <cstddef>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/moe_sum/moe_finalize.cuh"

namespace k3::cuda {
namespace {

/// Up to here shorter accesses, more of them at once, are faster.
constexpr std::int64_t kSmallOutputs = std::int64_t{1} << 17;

/// Problems past 2^31 CTAs take several launches.
template <int kVec, int kBatch>
cudaError_t launch_tokens(const MoeFinalizeProblem& problem, const Target& target) {
  constexpr std::int64_t kMaxCtas = (std::int64_t{1} << 31) - 1;
  MoeFinalizeParams p;
  p.experts_out = problem.experts_out;
  p.num_rows = problem.num_rows;
  p.experts_out_stride = problem.experts_out_stride;
  p.weights_stride = problem.weights_stride;
  p.out_stride = problem.out_stride;
  p.topk = problem.topk;
  p.weights_are_f32 = problem.weights_dtype == DType::kF32;
  p.row_vectors = problem.H / kVec;
  if (p.row_vectors == 0) return cudaSuccess;
  p.parts = static_cast<std::uint32_t>((p.row_vectors - 1) / kMoeFinalizeThreads + 1);
  p.by_parts = Divider(p.parts);
  const std::int64_t max_tokens = kMaxCtas / p.parts;
  const auto weight_bytes = static_cast<std::int64_t>(size_of(problem.weights_dtype));
  for (std::int64_t token = 0; token < problem.T; token += max_tokens) {
    p.idx = problem.idx.data + token * problem.topk;
    p.topk_weights = static_cast<const std::byte*>(problem.topk_weights) +
                     token * problem.weights_stride * weight_bytes;
    p.out = problem.out + token * problem.out_stride;
    LaunchConfig config = launch_config(target);
    config.grid = dim3(static_cast<unsigned>(std::min(max_tokens, problem.T - token)) * p.parts);
    config.block = dim3(kMoeFinalizeThreads);
    const cudaError_t error = launch(moe_finalize_kernel<kVec, kBatch>, config, p);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

const char* moe_finalize_vec8_refusal(const MoeFinalizeProblem& p, const Target&) {
  if (p.H % 8 != 0) return "H is not a multiple of 8";
  if (!rows_aligned(p.experts_out, DType::kBF16, 16, p.experts_out_stride))
    return "rows of experts_out are not aligned to 16 bytes";
  if (!rows_aligned(p.out, DType::kBF16, 16, p.out_stride))
    return "rows of out are not aligned to 16 bytes";
  return nullptr;
}

void moe_finalize_vec8(const MoeFinalizeProblem& p, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  const bool small = p.T <= kSmallOutputs && p.T * p.H <= kSmallOutputs;
  K3_CUDA_CHECK((small ? launch_tokens<4, 16>(p, target) : launch_tokens<8, 8>(p, target)));
}

void moe_finalize_scalar(const MoeFinalizeProblem& p, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK((launch_tokens<1, 16>(p, target)));
}

}  // namespace k3::cuda
