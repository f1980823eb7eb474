// SPDX-License-Identifier: Apache-2.0
#include "cuda/situ_mul_quant/situ_mul_quant.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/device.h"
#include "cuda/situ_mul_quant/kernel.cuh"

namespace k3::cuda {
namespace {

constexpr std::int64_t kMaxStride = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;

SituQuantParams params_of(const SituMulQuantProblem& problem) {
  SituQuantParams p;
  p.input = problem.input;
  p.output_q = problem.output_q;
  p.scales = problem.scales;
  p.masked_m = problem.masked_m.data;
  p.masked_stride = problem.masked_m.stride;
  p.input_expert = static_cast<std::uint32_t>(problem.input_expert_stride);
  p.input_row = static_cast<std::uint32_t>(problem.input_row_stride);
  p.q_expert = static_cast<std::uint32_t>(problem.q_expert_stride);
  p.q_row = static_cast<std::uint32_t>(problem.q_row_stride);
  p.scale_expert = static_cast<std::uint32_t>(problem.scale_expert_stride);
  p.scale_row = static_cast<std::uint32_t>(problem.scales.row_stride);
  p.up_offset = problem.swizzle ? 8 : static_cast<std::uint32_t>(problem.N);
  p.run_offset = problem.swizzle ? 16 : 8;
  p.lane_step = problem.swizzle ? 2 * kSituQuantVec : kSituQuantVec;
  p.E = static_cast<int>(problem.E);
  p.Tp = static_cast<int>(problem.Tp);
  p.row_vectors = static_cast<int>(problem.N / kSituQuantVec);
  p.rows_at_once = std::max(kSituQuantThreads / p.row_vectors, 1);
  p.round_to_bf16 = problem.round_to_bf16;
  p.caps = situ_caps(problem.beta, problem.linear_beta);
  return p;
}

int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

/// Whole warps, for the rows that stand side by side or for an even cut of a long one.
int threads_of(const SituQuantParams& p) {
  const int passes = (p.row_vectors + kSituQuantThreads - 1) / kSituQuantThreads;
  return round_up(p.rows_at_once * ((p.row_vectors + passes - 1) / passes), 32);
}

/// One wave of CTAs for live rows whose number is known on the device alone.
void set_masked_grid(const SituQuantParams& p, int num_sms, LaunchConfig& config) {
  const int rows = (p.E * p.Tp - 1) / p.rows_at_once + 1;
  config.grid = dim3(static_cast<unsigned>(std::min(rows, kSituQuantCtasPerSm * num_sms)));
  config.block = dim3(static_cast<unsigned>(threads_of(p)));
  config.dynamic_smem_bytes = sizeof(std::int32_t) * (static_cast<std::size_t>(p.E) + 1);
}

/// The rows of all CTAs, or a warp or more of a row where they are fewer than the SMs.
void set_dense_grid(int num_sms, SituQuantParams& p, LaunchConfig& config) {
  const int parts = std::min(num_sms / p.Tp, (p.row_vectors + 31) / 32);
  if (parts > 1) {
    p.rows_at_once = 1;
    config.grid = dim3(static_cast<unsigned>(p.Tp), static_cast<unsigned>(parts));
    const int threads = round_up((p.row_vectors + parts - 1) / parts, 32);
    config.block = dim3(static_cast<unsigned>(std::min(threads, kSituQuantThreads)));
    return;
  }
  config.grid = dim3(static_cast<unsigned>((p.Tp - 1) / p.rows_at_once + 1));
  config.block = dim3(static_cast<unsigned>(threads_of(p)));
}

template <bool kBounded>
cudaError_t launch_live_rows(const SituMulQuantProblem& problem, const SituQuantParams& p,
                             const LaunchConfig& config) {
  return problem.format == QuantFormat::kE4M3UE8M0
             ? launch(situ_mul_quant_live_rows_kernel<kBounded, QuantFormat::kE4M3UE8M0>, config, p)
             : launch(situ_mul_quant_live_rows_kernel<kBounded, QuantFormat::kE4M3>, config, p);
}

}  // namespace

const char* situ_mul_quant_live_rows_refusal(const SituMulQuantProblem& problem, const Target&) {
  if (problem.E > kSituQuantMaxExperts) return "more than 8192 experts";
  if (problem.E > 0 && problem.Tp > kMaxRows / problem.E) return "more than 2^30 rows";
  for (const std::int64_t stride :
       {problem.N, problem.input_expert_stride, problem.input_row_stride, problem.q_expert_stride,
        problem.q_row_stride, problem.scale_expert_stride, problem.scales.row_stride})
    if (stride > kMaxStride) return "strides do not fit 31 bits";
  if (!rows_aligned(problem.input, DType::kBF16, 16, problem.input_expert_stride,
                    problem.input_row_stride))
    return "rows of input are not aligned to 16 bytes";
  if (!rows_aligned(problem.output_q, DType::kF8E4M3, 16, problem.q_expert_stride,
                    problem.q_row_stride))
    return "rows of output_q are not aligned to 16 bytes";
  return nullptr;
}

void situ_mul_quant_live_rows(const SituMulQuantProblem& problem, const Target& target) {
  const std::int64_t num_rows = problem.E * problem.Tp;
  if (num_rows == 0 || problem.N == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  SituQuantParams p = params_of(problem);
  LaunchConfig config = launch_config(target);
  const int num_sms = properties(target.device.index).num_sms;
  if (problem.masked_m.defined())
    set_masked_grid(p, num_sms, config);
  else
    set_dense_grid(num_sms, p, config);
  K3_CUDA_CHECK(has_bounded_situ(p.caps) ? launch_live_rows<true>(problem, p, config)
                                         : launch_live_rows<false>(problem, p, config));
}

void situ_mul_quant_warp_per_group(const SituMulQuantProblem& problem, const Target& target) {
  constexpr std::int64_t kMaxCtas = 1 << 16;
  const std::int64_t num_rows = problem.E * problem.Tp;
  if (num_rows == 0 || problem.N == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  const SituCaps caps = situ_caps(problem.beta, problem.linear_beta);
  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(std::min(num_rows, kMaxCtas)));
  config.block = dim3(256);
  K3_CUDA_CHECK(problem.format == QuantFormat::kE4M3UE8M0
                    ? launch(situ_mul_quant_warp_per_group_kernel<QuantFormat::kE4M3UE8M0>, config,
                             problem, caps)
                    : launch(situ_mul_quant_warp_per_group_kernel<QuantFormat::kE4M3>, config,
                             problem, caps));
}

}  // namespace k3::cuda
