// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_align/moe_align.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/moe_align/kernel.cuh"

namespace k3::cuda {
namespace {

LaunchConfig config_of(const Target& target, int grid, int block, std::size_t smem_bytes) {
  LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(grid));
  config.block = dim3(static_cast<unsigned>(block));
  config.dynamic_smem_bytes = smem_bytes;
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  return config;
}

/// Chunks of 256 slots until there are 128 of them: enough to fill the chip, few enough for one CTA
/// to add up.
AlignPlan plan_of(const MoeAlignProblem& p) {
  constexpr std::int64_t kMinSlots = 256;
  constexpr std::int64_t kMaxChunks = 128;
  const std::int64_t slots = p.num_slots;
  const std::int64_t chunk = std::max(kMinSlots, ((slots - 1) / kMaxChunks + 1 + 31) / 32 * 32);
  AlignPlan plan = {};
  plan.num_chunks = static_cast<int>(std::max<std::int64_t>(1, (slots + chunk - 1) / chunk));
  plan.chunk_slots = static_cast<int>(chunk);
  return plan;
}

}  // namespace

const char* moe_align_one_token_refusal(const MoeAlignProblem& p, const Target&) {
  return p.num_tokens == 1 ? nullptr : "there is not one token";
}

const char* moe_align_counting_sort_refusal(const MoeAlignProblem& p, const Target&) {
  return p.num_tokens == 1 ? "one token has blocks of another kind" : nullptr;
}

void moe_align_one_token(const MoeAlignProblem& p, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(launch(align_one_token_kernel, config_of(target, 1, kAlignThreads, 0), p));
}

std::size_t moe_align_counting_sort_workspace_size(const MoeAlignProblem& p, const Target&) {
  if (p.num_tokens == 1) return 0;
  const auto experts = static_cast<std::size_t>(p.num_experts);
  const auto chunks = static_cast<std::size_t>(plan_of(p).num_chunks);
  return (experts * chunks + experts + 1) * sizeof(std::int32_t);
}

void moe_align_counting_sort(const MoeAlignProblem& p, const Target& target) {
  AlignPlan plan = plan_of(p);
  plan.chunk = static_cast<std::int32_t*>(target.workspace.data);
  plan.begin = plan.chunk + std::int64_t{p.num_experts} * plan.num_chunks;
  const std::size_t per_expert = static_cast<std::size_t>(p.num_experts) * sizeof(int);
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(launch(align_count_kernel,
                       config_of(target, plan.num_chunks, kAlignThreads, per_expert), p, plan));
  K3_CUDA_CHECK(
      launch(align_sum_kernel, config_of(target, 1, kAlignSumThreads, per_expert), p, plan));
  K3_CUDA_CHECK(
      launch(align_scatter_kernel, config_of(target, plan.num_chunks, 32, per_expert), p, plan));
}

}  // namespace k3::cuda
