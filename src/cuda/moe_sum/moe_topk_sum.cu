// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_sum/moe_topk_sum.h"

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/vector_blocks.h"
#include "cuda/moe_sum/moe_topk_sum.cuh"

namespace k3::cuda {
namespace {

/// Up to here shorter accesses in smaller blocks are faster: more SMs take part.
constexpr std::int64_t kSmallOutputs = std::int64_t{1} << 17;

template <int kVec, int kBatch>
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
  LaunchConfig config;
  config.grid = block.grid(threads);
  config.block = dim3(static_cast<unsigned>(threads));
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  return launch(moe_topk_sum_kernel<kVec, kBatch>, config, p);
}

/// Problems past 2^31 vectors take several launches.
template <int kVec>
void run(const MoeTopkSumProblem& problem, int threads, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(for_each_vector_block(problem.T, problem.H / kVec, [&](const VectorBlock& block) {
    return problem.topk > 8 ? launch_block<kVec, 16>(problem, block, threads, target)
                            : launch_block<kVec, 8>(problem, block, threads, target);
  }));
}

}  // namespace

const char* moe_topk_sum_vec8_refusal(const MoeTopkSumProblem& p, const Target&) {
  if (p.H % 8 != 0) return "H is not a multiple of 8";
  if (!rows_aligned(p.input, DType::kBF16, 16, p.token_stride, p.slot_stride))
    return "rows of input are not aligned to 16 bytes";
  if (!rows_aligned(p.out, DType::kBF16, 16, p.out_stride))
    return "rows of out are not aligned to 16 bytes";
  return nullptr;
}

void moe_topk_sum_vec8(const MoeTopkSumProblem& p, const Target& target) {
  const bool small = p.T <= kSmallOutputs && p.T * p.H <= kSmallOutputs;
  return small ? run<4>(p, 64, target) : run<8>(p, 128, target);
}

void moe_topk_sum_scalar(const MoeTopkSumProblem& p, const Target& target) {
  run<1>(p, 128, target);
}

}  // namespace k3::cuda
