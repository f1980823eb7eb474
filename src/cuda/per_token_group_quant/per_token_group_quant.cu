// SPDX-License-Identifier: Apache-2.0
#include "cuda/per_token_group_quant/per_token_group_quant.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/per_token_group_quant/kernel.cuh"

namespace k3::cuda {
namespace {

/// Of one launch; a multiple of the vectors of four groups, so that a row is cut between words.
constexpr std::int64_t kMaxVectors = (std::int64_t{1} << 31) - 128;

template <class T, QuantFormat kFormat>
struct Vec16 {
  static cudaError_t launch_all(const PerTokenGroupQuantProblem& problem, LaunchConfig config) {
    const std::int64_t row_vectors = problem.D / kGroupQuantVec;
    const std::int64_t lanes = problem.group_size / kGroupQuantVec;
    const std::int64_t scale_bytes = size_of(DType::kF32);  // of a word as well
    GroupQuantParams p;
    p.input_stride = problem.input_stride;
    p.q_stride = problem.q_stride;
    p.scales = problem.scales;
    p.lanes = static_cast<std::uint32_t>(lanes);
    p.lanes_log2 = static_cast<std::uint32_t>(std::countr_zero(p.lanes));
    for (std::int64_t vector = 0; vector < row_vectors; vector += kMaxVectors) {
      const std::int64_t vectors = std::min(kMaxVectors, row_vectors - vector);
      const std::int64_t first_group = vector / lanes;
      const std::int64_t scale_column = problem.scales.packed ? first_group / 4 : first_group;
      p.row_vectors = static_cast<std::uint32_t>(vectors);
      p.by_row_vectors = Divider(p.row_vectors);
      p.scales.num_groups = problem.scales.num_groups - first_group;
      const std::int64_t max_rows = kMaxVectors / vectors;
      for (std::int64_t row = 0; row < problem.T; row += max_rows) {
        const std::int64_t rows = std::min(max_rows, problem.T - row);
        p.input = static_cast<const T*>(problem.input) + row * problem.input_stride +
                  vector * kGroupQuantVec;
        p.output_q = problem.output_q + row * problem.q_stride + vector * kGroupQuantVec;
        p.scales.data = static_cast<std::byte*>(problem.scales.data) +
                        scale_bytes * (row * problem.scales.row_stride +
                                       scale_column * problem.scales.group_stride);
        p.num_vectors = static_cast<std::uint32_t>(rows * vectors);
        config.grid = dim3((p.num_vectors - 1) / kGroupQuantThreads + 1);
        const cudaError_t error = launch(group_quant_vec16_kernel<T, kFormat>, config, p);
        if (error != cudaSuccess) return error;
      }
    }
    return cudaSuccess;
  }
};

template <class T, QuantFormat kFormat>
struct WarpPerGroup {
  static cudaError_t launch_all(const PerTokenGroupQuantProblem& problem, LaunchConfig config) {
    constexpr std::int64_t kMaxCtas = 1 << 16;
    constexpr std::int64_t kWarps = kGroupQuantThreads / 32;
    const std::int64_t groups = std::min(problem.T * problem.scales.num_groups, kMaxCtas * kWarps);
    config.grid = dim3(static_cast<unsigned>((groups - 1) / kWarps + 1));
    return launch(group_quant_general_kernel<T, kFormat>, config, problem);
  }
};

template <template <class, QuantFormat> class Variant, class T>
cudaError_t launch_format(const PerTokenGroupQuantProblem& problem, const LaunchConfig& config) {
  switch (problem.format) {
    case QuantFormat::kE4M3:
      return Variant<T, QuantFormat::kE4M3>::launch_all(problem, config);
    case QuantFormat::kE4M3UE8M0:
      return Variant<T, QuantFormat::kE4M3UE8M0>::launch_all(problem, config);
    case QuantFormat::kI8:
      return Variant<T, QuantFormat::kI8>::launch_all(problem, config);
  }
  return cudaErrorInvalidValue;
}

template <template <class, QuantFormat> class Variant>
void run(const PerTokenGroupQuantProblem& problem, const Target& target) {
  if (problem.T == 0 || problem.D == 0) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  LaunchConfig config = launch_config(target);
  config.block = dim3(kGroupQuantThreads);
  K3_CUDA_CHECK((problem.input_dtype == DType::kF32
                     ? launch_format<Variant, float>(problem, config)
                     : launch_format<Variant, bf16>(problem, config)));
}

}  // namespace

const char* per_token_group_quant_vec16_refusal(const PerTokenGroupQuantProblem& problem,
                                                const Target&) {
  if (!std::has_single_bit(static_cast<unsigned>(problem.group_size)))
    return "group_size is not a power of two";
  if (!rows_aligned(problem.input, problem.input_dtype, 16, problem.input_stride))
    return "rows of input are not aligned to 16 bytes";
  if (!rows_aligned(problem.output_q, DType::kI8, 16, problem.q_stride))
    return "rows of output_q are not aligned to 16 bytes";
  return nullptr;
}

void per_token_group_quant_vec16(const PerTokenGroupQuantProblem& problem, const Target& target) {
  run<Vec16>(problem, target);
}

void per_token_group_quant_warp_per_group(const PerTokenGroupQuantProblem& problem,
                                          const Target& target) {
  run<WarpPerGroup>(problem, target);
}

}  // namespace k3::cuda
