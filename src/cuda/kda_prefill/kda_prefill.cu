// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_prefill/kda_prefill.h"

#include <limits>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/kda_prefill/builder.cuh"
#include "cuda/kda_prefill/chain_mma_sync.cuh"
#include "cuda/kda_prefill/chain_wgmma.cuh"
#include "cuda/kda_prefill/plan.cuh"

namespace k3::cuda {
namespace {

/// SMs of an H200. Up to so many CTAs of the chain have one each.
constexpr std::int64_t kManyCtas = 132;

/// Parts of the workspace, one behind the other.
class WorkspaceParts {
 public:
  explicit WorkspaceParts(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <class T>
  T* take(std::int64_t count) {
    constexpr std::size_t kAlignment = alignof(ChunkFactors);
    std::byte* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ +=
        (sizeof(T) * static_cast<std::size_t>(count) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

PrefillPlan lay_out(const KdaPrefillProblem& p, WorkspaceParts& parts) {
  PrefillPlan plan;
  plan.num_slots = p.num_chunk_slots();
  plan.factors = parts.take<ChunkFactors>(plan.num_slots * p.HV);
  if (!p.packed || p.N <= 1) return plan;
  plan.first_chunk = parts.take<std::int64_t>(p.N);
  plan.longest = parts.take<std::int32_t>(p.N);
  return plan;
}

template <class... Params>
void launch_one(void (*kernel)(Params...), dim3 ctas, int threads, std::size_t shared_bytes,
                const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  LaunchConfig config = launch_config(target);
  config.grid = ctas;
  config.block = dim3(static_cast<unsigned>(threads));
  config.dynamic_smem_bytes = shared_bytes;
  K3_CUDA_CHECK(launch(kernel, config, p, plan));
}

/// What a CTA may have of it.
std::size_t shared_memory_of(Device device) {
  int bytes = 0;
  K3_CUDA_CHECK(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  return static_cast<std::size_t>(bytes);
}

void launch_factors(const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  const std::int64_t rows = plan.num_slots + (plan.longest != nullptr ? 1 : 0);
  if (rows > 0)
    launch_one(kda_prefill_builder_kernel,
               grid_over_requests(static_cast<unsigned>(p.HV), static_cast<int>(rows)),
               kBuilderThreads, sizeof(BuilderShared), p, plan, target);
}

template <int kStages>
void launch_mma_sync(const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  launch_one(kda_prefill_chain_kernel<kStages>, static_cast<unsigned>(2 * p.N * p.HV),
             kChainThreads, sizeof(PrefillChainShared<kStages>), p, plan, target);
}

/// A CTA that has an SM for itself has stages to be ahead of itself.
void launch_mma_sync_chain(const KdaPrefillProblem& p, const PrefillPlan& plan,
                           const Target& target) {
  if (std::int64_t{2} * p.N * p.HV <= kManyCtas &&
      shared_memory_of(target.device) >= sizeof(PrefillChainShared<3>))
    launch_mma_sync<3>(p, plan, target);
  else
    launch_mma_sync<1>(p, plan, target);
}

template <class Traits>
void launch_wgmma(const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  launch_one(kda_prefill_wgmma_chain_kernel<Traits>,
             static_cast<unsigned>(2 / Traits::kGroups * p.N * p.HV), Traits::kThreads,
             sizeof(WgmmaChainShared<Traits>), p, plan, target);
}

/// Both halves of a head in one CTA share its factors, but also its tensor cores.
void launch_wgmma_chain(const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  if (std::int64_t{2} * p.N * p.HV <= kManyCtas)
    launch_wgmma<WgmmaHalf>(p, plan, target);
  else
    launch_wgmma<WgmmaWhole>(p, plan, target);
}

template <class Chain>
void run_prefill(const KdaPrefillProblem& p, const Target& target, const Chain& launch_chain) {
  if (p.N == 0 || p.writes_nothing()) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  WorkspaceParts parts(target.workspace.data);
  const PrefillPlan plan = lay_out(p, parts);
  launch_factors(p, plan, target);
  launch_chain(p, plan, target);
}

}  // namespace

const char* kda_prefill_refusal(const KdaPrefillProblem& p, const Target&) {
  constexpr std::int64_t kMaxCtas = std::numeric_limits<std::int32_t>::max();
  if (p.num_chunk_slots() >= kMaxCtas / p.HV) return "2^31 chunk slots of heads or more";
  if (std::int64_t{2} * p.N * p.HV > kMaxCtas) return "2^30 sequences of heads or more";
  return nullptr;
}

std::size_t kda_prefill_workspace_size(const KdaPrefillProblem& problem, const Target&) {
  WorkspaceParts parts(nullptr);
  lay_out(problem, parts);
  return parts.used();
}

void kda_prefill_wgmma(const KdaPrefillProblem& p, const Target& target) {
  run_prefill(p, target, launch_wgmma_chain);
}

void kda_prefill_mma_sync(const KdaPrefillProblem& p, const Target& target) {
  run_prefill(p, target, launch_mma_sync_chain);
}

}  // namespace k3::cuda
