// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_prefill/kda_prefill.h"

#include <algorithm>
#include <limits>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/kda_prefill/builder.cuh"
#include "cuda/kda_prefill/chain_mma_sync.cuh"
#include "cuda/kda_prefill/chain_wgmma.cuh"
#include "cuda/kda_prefill/one_chunk.cuh"
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

/// All sequences are for the kernel of one chunk, whatever cu_seqlens holds.
bool are_all_short(const KdaPrefillProblem& p) { return p.T <= kChunk; }

/// Any may be, and which are, the device alone knows.
bool is_any_short(const KdaPrefillProblem& p) { return are_all_short(p) || (p.packed && p.N > 1); }

/// So many short sequences are likely that a CTA for each slot and head would mostly be one that
/// has nothing to do.
bool are_many_short(const KdaPrefillProblem& p) {
  return p.packed && p.N > 1 && p.T < 2 * kChunk * std::int64_t{p.N};
}

PrefillPlan lay_out(const KdaPrefillProblem& p, WorkspaceParts& parts) {
  PrefillPlan plan;
  if (are_all_short(p)) return plan;
  plan.num_slots = p.num_chunk_slots();
  plan.factors = parts.take<ChunkFactors>(plan.num_slots * p.HV);
  if (!p.packed || p.N <= 1) return plan;
  plan.first_chunk = parts.take<std::int64_t>(p.N);
  plan.longest = parts.take<std::int32_t>(p.N);
  plan.num_long = parts.take<std::int32_t>(1);
  return plan;
}

template <class... Params>
void launch_one(void (*kernel)(Params...), dim3 ctas, int threads, std::size_t shared_bytes,
                const Target& target, const Params&... params) {
  LaunchConfig config;
  config.grid = ctas;
  config.block = dim3(static_cast<unsigned>(threads));
  config.dynamic_smem_bytes = shared_bytes;
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  K3_CUDA_CHECK(launch(kernel, config, params...));
}

/// What a CTA may have of it.
std::size_t shared_memory_of(Device device) {
  int bytes = 0;
  K3_CUDA_CHECK(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  return static_cast<std::size_t>(bytes);
}

int num_sms(Device device) {
  int sms = 0;
  K3_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.index));
  return sms;
}

void launch_one_chunk(const KdaPrefillProblem& p, const Target& target) {
  const std::int64_t ctas =
      std::min(std::int64_t{p.N} * p.HV, std::int64_t{kOneChunkCtas} * num_sms(target.device));
  launch_one(kda_prefill_one_chunk_kernel, static_cast<unsigned>(ctas), kBuilderThreads,
             sizeof(OneChunkShared), target, p);
}

void launch_factors(const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  if (are_many_short(p)) {
    const std::int64_t ctas =
        std::min(plan.num_slots * p.HV, std::int64_t{kBuilderCtas} * num_sms(target.device));
    launch_one(kda_prefill_few_builders_kernel, static_cast<unsigned>(1 + ctas), kBuilderThreads,
               sizeof(BuilderShared), target, p, plan);
    return;
  }
  const std::int64_t rows = plan.num_slots + (plan.longest != nullptr ? 1 : 0);
  launch_one(kda_prefill_builder_kernel,
             grid_over_requests(static_cast<unsigned>(p.HV), static_cast<int>(rows)),
             kBuilderThreads, sizeof(BuilderShared), target, p, plan);
}

/// Heads of the sequences that the chain takes, at most.
std::int64_t num_chain_heads(const KdaPrefillProblem& p, const PrefillPlan& plan) {
  const std::int64_t sequences =
      plan.longest != nullptr ? std::min<std::int64_t>(p.N, p.T / (kChunk + 1)) : p.N;
  return sequences * p.HV;
}

/// @param ctas_of_head  that the kernel has for a head of a sequence
/// @param ctas_of_sm  that are there at once
template <class Kernel>
void launch_chain(Kernel kernel, int ctas_of_head, int ctas_of_sm, int threads,
                  std::size_t shared_bytes, const KdaPrefillProblem& p, const PrefillPlan& plan,
                  const Target& target) {
  std::int64_t ctas = ctas_of_head * num_chain_heads(p, plan);
  if (are_many_short(p)) ctas = std::min(ctas, std::int64_t{ctas_of_sm} * num_sms(target.device));
  launch_one(kernel, static_cast<unsigned>(ctas), threads, shared_bytes, target, p, plan);
}

template <int kStages>
void launch_mma_sync(const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  launch_chain(kda_prefill_chain_kernel<kStages>, 2, kStages == 1 ? 2 : 1, kChainThreads,
               sizeof(PrefillChainShared<kStages>), p, plan, target);
}

/// A CTA that has an SM for itself has stages to be ahead of itself.
void launch_mma_sync_chain(const KdaPrefillProblem& p, const PrefillPlan& plan,
                           const Target& target) {
  if (2 * num_chain_heads(p, plan) <= kManyCtas &&
      shared_memory_of(target.device) >= sizeof(PrefillChainShared<3>))
    launch_mma_sync<3>(p, plan, target);
  else
    launch_mma_sync<1>(p, plan, target);
}

template <class Traits>
void launch_wgmma(const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  launch_chain(kda_prefill_wgmma_chain_kernel<Traits>, 2 / Traits::kGroups, 1, Traits::kThreads,
               sizeof(WgmmaChainShared<Traits>), p, plan, target);
}

/// Both halves of a head in one CTA share its factors, but also its tensor cores.
void launch_wgmma_chain(const KdaPrefillProblem& p, const PrefillPlan& plan, const Target& target) {
  if (2 * num_chain_heads(p, plan) <= kManyCtas)
    launch_wgmma<WgmmaHalf>(p, plan, target);
  else
    launch_wgmma<WgmmaWhole>(p, plan, target);
}

template <class Chain>
void run_prefill(const KdaPrefillProblem& p, const Target& target, const Chain& launch_long) {
  if (p.N == 0 || p.writes_nothing()) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  WorkspaceParts parts(target.workspace.data);
  const PrefillPlan plan = lay_out(p, parts);
  if (is_any_short(p)) launch_one_chunk(p, target);
  if (are_all_short(p)) return;
  launch_factors(p, plan, target);
  launch_long(p, plan, target);
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
