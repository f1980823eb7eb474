// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_sum/moe_topk_sum.h"

#include <algorithm>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/vector_blocks.h"
#include "cuda/moe_sum/moe_topk_sum.cuh"

namespace k3::cuda {
namespace {

/// Up to here more loads at once are faster than more threads at once, and the grid is in place
/// before it may load; up to the smaller one 4-byte accesses, with which more SMs take part.
constexpr std::int64_t kSmallOutputs = std::int64_t{1} << 17;
constexpr std::int64_t kSmallestOutputs = std::int64_t{1} << 16;

template <int kVec, int kBatch, bool kEarly>
cudaError_t launch_block(const MoeTopkSumProblem& problem, const VectorBlock& block, int threads,
                         const Target& target) {
  const std::int64_t column = block.first_vector * kVec;
  MoeTopkSumParams p;
  p.input = problem.input + block.first_row * problem.token_stride + column;
  p.out = problem.out + block.first_row * problem.out_stride + column;
  p.token_stride = problem.token_stride;
  p.slot_stride = problem.slot_stride;
  p.out_stride = problem.out_stride;
  p.topk = problem.topk;
  p.row_vectors = block.row_vectors;
  p.num_vectors = block.num_vectors;
  p.by_row_vectors = block.by_row_vectors;
  LaunchConfig config = launch_config(target);
  config.grid = block.grid(threads);
  config.block = dim3(static_cast<unsigned>(threads));
  return launch(moe_topk_sum_kernel<kVec, kBatch, kEarly>, config, p);
}

/// Problems past 2^31 vectors take several launches.
template <int kVec, int kBatch, bool kEarly>
void run(const MoeTopkSumProblem& problem, int threads, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(for_each_vector_block(problem.T, problem.H / kVec, [&](const VectorBlock& block) {
    return launch_block<kVec, kBatch, kEarly>(problem, block, threads, target);
  }));
}

}  // namespace

const char* moe_topk_sum_vec4_refusal(const MoeTopkSumProblem& p, const Target&) {
  if (p.H % 4 != 0) return "H is not a multiple of 4";
  if (!rows_aligned(p.input, DType::kBF16, 8, p.token_stride, p.slot_stride))
    return "rows of input are not aligned to 8 bytes";
  if (!rows_aligned(p.out, DType::kBF16, 8, p.out_stride))
    return "rows of out are not aligned to 8 bytes";
  return nullptr;
}

void moe_topk_sum_vec4(const MoeTopkSumProblem& p, const Target& target) {
  const std::int64_t outputs = std::min(p.T, kSmallOutputs + 1) * p.H;
  if (outputs <= kSmallestOutputs) return run<2, 16, true>(p, 64, target);
  return outputs <= kSmallOutputs ? run<4, 16, true>(p, 128, target)
                                  : run<4, 8, false>(p, 128, target);
}

void moe_topk_sum_scalar(const MoeTopkSumProblem& p, const Target& target) {
  run<1, 16, false>(p, 128, target);
}

}  // namespace k3::cuda
