// SPDX-License-Identifier: Apache-2.0
#include "cuda/moe_sum/moe_finalize.h"

#include <cstddef>

#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/vector_blocks.h"
#include "cuda/moe_sum/moe_finalize.cuh"

namespace k3::cuda {
namespace {

/// Up to here shorter accesses in smaller blocks are faster: more SMs take part.
constexpr std::int64_t kSmallOutputs = std::int64_t{1} << 17;

template <int kVec, int kBatch>
cudaError_t launch_block(const MoeFinalizeProblem& problem, const VectorBlock& block, int threads,
                         const Target& target) {
  const std::int64_t column = block.first_vector * kVec;
  MoeFinalizeParams p;
  p.experts_out = problem.experts_out + column;
  p.idx = problem.idx.data + block.first_row * problem.topk;
  p.topk_weights = static_cast<const std::byte*>(problem.topk_weights) +
                   block.first_row * problem.weights_stride *
                       static_cast<std::int64_t>(size_of(problem.weights_dtype));
  p.out = problem.out + block.first_row * problem.out_stride + column;
  p.num_rows = problem.num_rows;
  p.experts_out_stride = problem.experts_out_stride;
  p.weights_stride = problem.weights_stride;
  p.out_stride = problem.out_stride;
  p.topk = problem.topk;
  p.weights_are_f32 = problem.weights_dtype == DType::kF32;
  p.row_vectors = block.row_vectors;
  p.num_vectors = block.num_vectors;
  p.by_row_vectors = block.by_row_vectors;
  LaunchConfig config;
  config.grid = block.grid(threads);
  config.block = dim3(static_cast<unsigned>(threads));
  config.pdl = target.pdl;
  config.stream = static_cast<cudaStream_t>(target.stream);
  return launch(moe_finalize_kernel<kVec, kBatch>, config, p);
}

/// Problems past 2^31 vectors take several launches.
template <int kVec>
void run(const MoeFinalizeProblem& problem, int threads, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  K3_CUDA_CHECK(for_each_vector_block(problem.T, problem.H / kVec, [&](const VectorBlock& block) {
    return problem.topk > 8 ? launch_block<kVec, 16>(problem, block, threads, target)
                            : launch_block<kVec, 8>(problem, block, threads, target);
  }));
}

}  // namespace

const char* moe_finalize_vec8_refusal(const MoeFinalizeProblem& p, const Target&) {
  if (p.H % 8 != 0) return "H is not a multiple of 8";
  if (!rows_aligned(p.experts_out, DType::kBF16, 16, p.experts_out_stride))
    return "rows of experts_out are not aligned to 16 bytes";
  if (!rows_aligned(p.out, DType::kBF16, 16, p.out_stride))
    return "rows of out are not aligned to 16 bytes";
  return nullptr;
}

void moe_finalize_vec8(const MoeFinalizeProblem& p, const Target& target) {
  const bool small = p.T <= kSmallOutputs && p.T * p.H <= kSmallOutputs;
  return small ? run<4>(p, 64, target) : run<8>(p, 128, target);
}

void moe_finalize_scalar(const MoeFinalizeProblem& p, const Target& target) {
  run<1>(p, 128, target);
}

}  // namespace k3::cuda
