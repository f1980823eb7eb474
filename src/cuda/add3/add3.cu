// SPDX-License-Identifier: Apache-2.0
#include "cuda/add3/add3.h"

#include "cuda/add3/kernel.cuh"
#include "cuda/common/alignment.h"
#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/common/vector_blocks.h"

namespace k3::cuda {
namespace {

/// Problems past 2^31 vectors take several launches.
template <int kVec>
void run(const Add3Problem& problem, const Target& target) {
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  const auto launch_block = [&](const VectorBlock& block) {
    const std::int64_t column = block.first_vector * kVec;
    Add3Params p;
    p.a = problem.a + block.first_row * problem.a_stride + column;
    p.b = problem.b + block.first_row * problem.b_stride + column;
    p.c = problem.c + block.first_row * problem.c_stride + column;
    p.out = problem.out + block.first_row * problem.out_stride + column;
    p.a_stride = problem.a_stride;
    p.b_stride = problem.b_stride;
    p.c_stride = problem.c_stride;
    p.out_stride = problem.out_stride;
    p.row_vectors = block.row_vectors;
    p.num_vectors = block.num_vectors;
    p.by_row_vectors = block.by_row_vectors;
    LaunchConfig config = launch_config(target);
    config.grid = block.grid(kAdd3Threads);
    config.block = dim3(kAdd3Threads);
    return launch(add3_kernel<kVec>, config, p);
  };
  K3_CUDA_CHECK(for_each_vector_block(problem.num_rows, problem.D / kVec, launch_block));
}

}  // namespace

const char* add3_vec8_refusal(const Add3Problem& p, const Target&) {
  if (p.D % 8 != 0) return "a row is not a multiple of 8 elements";
  if (!rows_aligned(p.a, DType::kBF16, 16, p.a_stride)) return "rows of a not aligned to 16 bytes";
  if (!rows_aligned(p.b, DType::kBF16, 16, p.b_stride)) return "rows of b not aligned to 16 bytes";
  if (!rows_aligned(p.c, DType::kBF16, 16, p.c_stride)) return "rows of c not aligned to 16 bytes";
  if (!rows_aligned(p.out, DType::kBF16, 16, p.out_stride))
    return "rows of out not aligned to 16 bytes";
  return nullptr;
}

void add3_vec8(const Add3Problem& p, const Target& target) {
  return few_outputs(p.num_rows, p.D) ? run<4>(p, target) : run<8>(p, target);
}

void add3_scalar(const Add3Problem& p, const Target& target) { run<1>(p, target); }

}  // namespace k3::cuda
