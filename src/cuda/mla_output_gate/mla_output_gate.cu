// SPDX-License-Identifier: Apache-2.0
#include "cuda/mla_output_gate/mla_output_gate.h"

#include "cuda/common/alignment.h"
#include "cuda/common/early_ctas.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/vector_blocks.h"
#include "cuda/mla_output_gate/kernel.cuh"

namespace k3::cuda {
namespace {

/// Problems past 2^31 vectors take several launches.
template <int kVec>
void run(const MlaOutputGateProblem& problem, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  const auto launch_block = [&](const VectorBlock& block) {
    const std::int64_t column = block.first_vector * kVec;
    MlaOutputGateParams p;
    p.x = problem.x + block.first_row * problem.x_stride + column;
    p.gate = problem.gate + block.first_row * problem.gate_stride + column;
    p.out = problem.out + block.first_row * problem.out_stride + column;
    p.x_stride = problem.x_stride;
    p.gate_stride = problem.gate_stride;
    p.out_stride = problem.out_stride;
    p.row_vectors = block.row_vectors;
    p.num_vectors = block.num_vectors;
    p.early_ctas = early_ctas(target, kMlaOutputGateThreads);
    p.by_row_vectors = block.by_row_vectors;
    LaunchConfig config = launch_config(target);
    config.grid = block.grid(kMlaOutputGateThreads);
    config.block = dim3(kMlaOutputGateThreads);
    return launch(mla_output_gate_kernel<kVec>, config, p);
  };
  K3_CUDA_CHECK(for_each_vector_block(problem.num_rows, problem.D / kVec, launch_block));
}

}  // namespace

const char* mla_output_gate_vec8_refusal(const MlaOutputGateProblem& p, const Target&) {
  if (p.D % 8 != 0) return "a row is not a multiple of 8 elements";
  if (!rows_aligned(p.x, DType::kBF16, 16, p.x_stride)) return "rows of x not aligned to 16 bytes";
  if (!rows_aligned(p.gate, DType::kBF16, 16, p.gate_stride))
    return "rows of gate not aligned to 16 bytes";
  if (!rows_aligned(p.out, DType::kBF16, 16, p.out_stride))
    return "rows of out not aligned to 16 bytes";
  return nullptr;
}

void mla_output_gate_vec8(const MlaOutputGateProblem& p, const Target& target) {
  return few_outputs(p.num_rows, p.D) ? run<4>(p, target) : run<8>(p, target);
}

void mla_output_gate_scalar(const MlaOutputGateProblem& problem, const Target& target) {
  run<1>(problem, target);
}

}  // namespace k3::cuda
