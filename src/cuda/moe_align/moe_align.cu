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
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(grid));
  config.block = dim3(static_cast<unsigned>(block));
  config.dynamic_smem_bytes = smem_bytes;
  return config;
}

/// Chunks of 1024 slots until there are 512 of them, as many as one CTA of the second kernel adds
/// up.
AlignPlan plan_of(const MoeAlignProblem& p) {
  constexpr std::int64_t kMinSlots = 1024;
  constexpr std::int64_t kMaxChunks = 512;
  const std::int64_t slots = p.num_slots;
  const std::int64_t wanted = (slots + kMaxChunks - 1) / kMaxChunks;
  const std::int64_t chunk =
      std::max(kMinSlots, (wanted + kAlignThreads - 1) / kAlignThreads * kAlignThreads);
  AlignPlan plan = {};
  plan.num_chunks = static_cast<int>(std::max<std::int64_t>(1, (slots + chunk - 1) / chunk));
  plan.chunk_slots = static_cast<int>(chunk);
  return plan;
}

}  // namespace

const char* moe_align_one_token_refusal(const MoeAlignProblem& p, const Target&) {
  return p.num_tokens == 1 ? nullptr : "there is not one token";
}

void moe_align_one_token(const MoeAlignProblem& p, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(launch(align_one_token_kernel, config_of(target, 1, kAlignThreads, 0), p));
}

const char* moe_align_one_launch_refusal(const MoeAlignProblem& p, const Target& target) {
  if (const char* reason = moe_align_three_launches_refusal(p, target)) return reason;
  if (p.num_slots > kAlignMostSlots) return "more than 4096 slots";
  if (p.num_experts > kAlignMostExperts) return "more than 1024 experts";
  return nullptr;
}

void moe_align_one_launch(const MoeAlignProblem& p, const Target& target) {
  constexpr int kWarps = kAlignManyThreads / 32;  // an expert each
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(
      launch(align_one_launch_kernel,
             config_of(target, (p.num_experts + kWarps - 1) / kWarps, kAlignManyThreads, 0), p));
}

const char* moe_align_three_launches_refusal(const MoeAlignProblem& p, const Target&) {
  return p.num_tokens == 1 ? "one token has blocks of another kind" : nullptr;
}

std::size_t moe_align_three_launches_workspace_size(const MoeAlignProblem& p, const Target&) {
  if (p.num_tokens == 1) return 0;
  const auto experts = static_cast<std::size_t>(p.num_experts);
  return experts * static_cast<std::size_t>(plan_of(p).num_chunks + 1) * sizeof(std::int32_t);
}

void moe_align_three_launches(const MoeAlignProblem& p, const Target& target) {
  AlignPlan plan = plan_of(p);
  plan.chunk = static_cast<std::int32_t*>(target.workspace.data);
  plan.total = plan.chunk + std::int64_t{p.num_experts} * plan.num_chunks;
  const std::size_t per_expert = static_cast<std::size_t>(p.num_experts) * sizeof(int);
  const int warps = p.num_experts <= 4096 ? 8 : 4;  // 128 KB of places
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(launch(align_count_kernel,
                       config_of(target, plan.num_chunks, kAlignThreads, per_expert), p, plan));
  K3_CUDA_CHECK(launch(align_sum_kernel,
                       config_of(target, (p.num_experts + 31) / 32, kAlignManyThreads, 0), p,
                       plan));
  K3_CUDA_CHECK(launch(
      align_scatter_kernel,
      config_of(target, plan.num_chunks, 32 * warps, static_cast<std::size_t>(warps) * per_expert),
      p, plan));
}

}  // namespace k3::cuda
