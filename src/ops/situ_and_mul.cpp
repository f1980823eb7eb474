// SPDX-License-Identifier: Apache-2.0
#include "k3/ops/situ_and_mul.h"

#include "cpu/kernels.h"
#include "ops/kernels.h"
#if K3_WITH_CUDA
#include "cuda/kernels.h"
#endif

namespace k3 {
namespace {

constexpr const char* kOp = "situ_and_mul";

constexpr Kernel<SituAndMulProblem> kKernels[] = {
#if K3_WITH_CUDA
    {Backend::kCuda, "vec8", "D and row strides multiples of 8, pointers aligned to 16 bytes",
     cuda::situ_and_mul_vec8_refusal, needs_no_workspace<SituAndMulProblem>,
     cuda::situ_and_mul_vec8},
    {Backend::kCuda, "scalar", "any call that meets the contract", accepts_all<SituAndMulProblem>,
     needs_no_workspace<SituAndMulProblem>, cuda::situ_and_mul_scalar},
#endif
    {Backend::kCpu, "simd", "any call that meets the contract", accepts_all<SituAndMulProblem>,
     needs_no_workspace<SituAndMulProblem>, cpu::situ_and_mul},
};

}  // namespace

std::span<const Kernel<SituAndMulProblem>> situ_and_mul_kernels() { return kKernels; }

void situ_and_mul(const SituAndMulArgs& args, const ExecContext& ctx) {
  run_op(kOp, situ_and_mul_kernels(), check(args), ctx);
}

std::size_t situ_and_mul_workspace_size(const SituAndMulArgs& args, const ExecContext& ctx) {
  return workspace_size_of(kOp, situ_and_mul_kernels(), check(args), ctx);
}

}  // namespace k3
