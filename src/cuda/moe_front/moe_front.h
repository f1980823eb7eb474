// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "contract/moe_front.h"
#include "dispatch/kernel.h"

/// The CUDA variants of moe_front and moe_front_epilogue. Each runs on `target.device` in
/// `target.stream` and returns after its launches. @throws CudaError
namespace k3::cuda {

/// A CTA a token: warps that route beside warps that round.
void moe_front_epilogue_one_launch(const MoeFrontEpilogueProblem& problem, const Target& target);
const char* moe_front_epilogue_one_launch_refusal(const MoeFrontEpilogueProblem& problem,
                                                  const Target& target);

/// The kernels of moe_route_topk, and one that rounds an element at a time.
void moe_front_epilogue_two_launches(const MoeFrontEpilogueProblem& problem, const Target& target);

/// The product by cuBLASLt, then the epilogue. The workspace holds merged and what cuBLASLt needs.
void moe_front_cublaslt(const MoeFrontProblem& problem, const Target& target);
const char* moe_front_cublaslt_refusal(const MoeFrontProblem& problem, const Target& target);
std::size_t moe_front_cublaslt_workspace_size(const MoeFrontProblem& problem, const Target& target);

/// The same by a kernel of ours. The workspace holds merged.
void moe_front_plain(const MoeFrontProblem& problem, const Target& target);
std::size_t moe_front_plain_workspace_size(const MoeFrontProblem& problem, const Target& target);

}  // namespace k3::cuda
