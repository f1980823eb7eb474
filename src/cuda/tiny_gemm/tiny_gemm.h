// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/tiny_gemm.h"
#include "dispatch/kernel.h"

/// The CUDA variants of tiny_gemm. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// Short rows of w: a warp makes eight columns by itself, on tensor cores.
void tiny_gemm_columns(const TinyGemmProblem& problem, const Target& target);
const char* tiny_gemm_columns_refusal(const TinyGemmProblem& problem, const Target& target);

/// Long rows: the CTAs of a cluster share columns, each with a part of k, on tensor cores.
void tiny_gemm_split_k(const TinyGemmProblem& problem, const Target& target);
const char* tiny_gemm_split_k_refusal(const TinyGemmProblem& problem, const Target& target);

/// Any call that meets the contract.
void tiny_gemm_general(const TinyGemmProblem& problem, const Target& target);

}  // namespace k3::cuda
