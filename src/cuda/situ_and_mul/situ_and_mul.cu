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

/// Problems past 2^31 vectors take several launches.
template <int kVec, bool kBetaIsFour, bool kHasSoftUp>
cudaError_t launch_all(const SituAndMulProblem& problem, const Target& target) {
  SituAndMulParams p;
  p.input_stride = problem.input_stride;
  p.out_stride = problem.out_stride;
  p.caps = situ_caps(problem.beta, problem.linear_beta);

  return for_each_vector_block(problem.num_rows, problem.D / kVec, [&](const VectorBlock& block) {
    p.row_vectors = block.row_vectors;
    p.num_vectors = block.num_vectors;
    p.by_row_vectors = block.by_row_vectors;
    const std::int64_t column = block.first_vector * kVec;
    p.gate = problem.input + block.first_row * problem.input_stride + column;
    p.up = p.gate + problem.D;
    p.out = problem.out + block.first_row * problem.out_stride + column;
    LaunchConfig config = launch_config(target);
    config.grid = block.grid(kSituAndMulThreads);
    config.block = dim3(kSituAndMulThreads);
    return launch(situ_and_mul_kernel<kVec, kBetaIsFour, kHasSoftUp>, config, p);
  });
}

template <int kVec>
void run(const SituAndMulProblem& problem, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  const bool beta_is_four = problem.beta == 4.0F;
  if (problem.has_linear_beta)
    K3_CUDA_CHECK((beta_is_four ? launch_all<kVec, true, true>(problem, target)
                                : launch_all<kVec, false, true>(problem, target)));
  else
    K3_CUDA_CHECK((beta_is_four ? launch_all<kVec, true, false>(problem, target)
                                : launch_all<kVec, false, false>(problem, target)));
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
  return few_outputs(problem.num_rows, problem.D) ? run<4>(problem, target)
                                                  : run<8>(problem, target);
}

void situ_and_mul_scalar(const SituAndMulProblem& problem, const Target& target) {
  run<1>(problem, target);
}

}  // namespace k3::cuda
