// SPDX-License-Identifier: Apache-2.0
#include "cuda/top_p_renorm/top_p_renorm.h"

#include <algorithm>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/top_p_renorm/kernel.cuh"

namespace k3::cuda {
namespace {

template <int kVec, int kThreads, int kRanks, int kHeld>
cudaError_t launch_rows(const TopPRenormProblem& problem, const Target& target) {
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 27;
  for (std::int64_t row = 0; row < problem.B; row += kMaxRows) {
    TopPRenormParams p;
    p.probs = problem.probs + row * problem.probs_stride;
    p.top_ps = problem.top_ps == nullptr ? nullptr : problem.top_ps + row * problem.top_ps_stride;
    p.out = problem.out + row * problem.out_stride;
    p.probs_stride = problem.probs_stride;
    p.top_ps_stride = problem.top_ps_stride;
    p.out_stride = problem.out_stride;
    p.V = problem.V;
    p.mass_bits = problem.mass_bits();
    p.top_p = problem.top_p;
    LaunchConfig config = launch_config(target);
    config.grid = dim3(static_cast<unsigned>(std::min(kMaxRows, problem.B - row)) * kRanks);
    config.block = dim3(kThreads);
    config.cluster_size = kRanks;
    const cudaError_t error = launch(top_p_renorm_kernel<kVec, kThreads, kRanks, kHeld>, config, p);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

/// As many threads a row as it has work for: 16 values each, then come more CTAs. A thread can hold
/// 32.
template <int kVec>
void run(const TopPRenormProblem& problem, const Target& target) {
  if (problem.V == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  constexpr int kHeld = 32 / kVec;
  const auto launch_for = [&](int V) {
    if (V <= 4096) return launch_rows<kVec, 256, 1, kHeld / 2>(problem, target);
    if (V <= 16384) return launch_rows<kVec, 1024, 1, kHeld / 2>(problem, target);
    if (V <= 65536) return launch_rows<kVec, 1024, 4, kHeld / 2>(problem, target);
    if (V <= 8 * 1024 * 32) return launch_rows<kVec, 1024, 8, kHeld>(problem, target);
    return launch_rows<kVec, 1024, 8, 0>(problem, target);
  };
  K3_CUDA_CHECK(launch_for(problem.V));
}

}  // namespace

const char* top_p_renorm_vec4_refusal(const TopPRenormProblem& p, const Target&) {
  if (p.V % 4 != 0) return "V is not a multiple of 4";
  if (!rows_aligned(p.probs, DType::kF32, 16, p.probs_stride))
    return "rows of probs are not aligned to 16 bytes";
  if (!rows_aligned(p.out, DType::kF32, 16, p.out_stride))
    return "rows of out are not aligned to 16 bytes";
  return nullptr;
}

void top_p_renorm_vec4(const TopPRenormProblem& p, const Target& target) { run<4>(p, target); }

void top_p_renorm_scalar(const TopPRenormProblem& p, const Target& target) { run<1>(p, target); }

}  // namespace k3::cuda
