// SPDX-License-Identifier: Apache-2.0
#include "cuda/situ_and_mul/situ_and_mul.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/vector_blocks.h"
#include "cuda/situ_and_mul/kernel.cuh"

namespace k3::cuda {
namespace {

template <class Traits>
cudaError_t launch_all(const SituAndMulProblem& problem, bool pdl, cudaStream_t stream) {
  SituAndMulParams p;
  p.input_stride = problem.input_stride;
  p.out_stride = problem.out_stride;
  p.caps = situ_caps(problem.beta, problem.linear_beta);

  return for_each_vector_block(
      problem.num_rows, problem.D / Traits::kVec, [&](const VectorBlock& block) {
        p.row_vectors = block.row_vectors;
        p.num_vectors = block.num_vectors;
        p.by_row_vectors = block.by_row_vectors;
        const std::int64_t column = block.first_vector * Traits::kVec;
        p.gate = problem.input + block.first_row * problem.input_stride + column;
        p.up = p.gate + problem.D;
        p.out = problem.out + block.first_row * problem.out_stride + column;
        LaunchConfig config;
        config.grid = block.grid(Traits::kNumThreads);
        config.block = dim3(Traits::kNumThreads);
        config.pdl = pdl;
        config.stream = stream;
        return launch(situ_and_mul_kernel<Traits>, config, p);
      });
}

/// `kVec` is 8, 4 or 1. Problems past 2^31 vectors take several launches.
template <int kVec>
cudaError_t launch_situ_and_mul(const SituAndMulProblem& problem, bool pdl, cudaStream_t stream) {
  const bool beta_is_four = problem.beta == 4.0F;
  if (problem.has_linear_beta)
    return beta_is_four ? launch_all<SituAndMulTraits<kVec, true, true>>(problem, pdl, stream)
                        : launch_all<SituAndMulTraits<kVec, false, true>>(problem, pdl, stream);
  return beta_is_four ? launch_all<SituAndMulTraits<kVec, true, false>>(problem, pdl, stream)
                      : launch_all<SituAndMulTraits<kVec, false, false>>(problem, pdl, stream);
}

template <int kVec>
void run(const SituAndMulProblem& problem, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(
      launch_situ_and_mul<kVec>(problem, target.pdl, static_cast<cudaStream_t>(target.stream)));
}

}  // namespace

const char* situ_and_mul_vec8_refusal(const SituAndMulProblem& problem, const Target&) {
  if (problem.D % 8 != 0) return "D is not a multiple of 8";
  if (problem.input_stride % 8 != 0) return "the row stride of input is not a multiple of 8";
  if (problem.out_stride % 8 != 0) return "the row stride of out is not a multiple of 8";
  if (!is_aligned(problem.input, 16)) return "input is not aligned to 16 bytes";
  if (!is_aligned(problem.out, 16)) return "out is not aligned to 16 bytes";
  return nullptr;
}

void situ_and_mul_vec8(const SituAndMulProblem& problem, const Target& target) {
  const bool small = problem.num_rows <= kSituAndMulSmallOutputs &&
                     problem.D <= kSituAndMulSmallOutputs &&
                     problem.num_rows * problem.D <= kSituAndMulSmallOutputs;
  return small ? run<4>(problem, target) : run<8>(problem, target);
}

void situ_and_mul_scalar(const SituAndMulProblem& problem, const Target& target) {
  run<1>(problem, target);
}

}  // namespace k3::cuda
