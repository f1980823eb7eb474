// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/attn_res_mix.h"
#include "dispatch/kernel.h"

/// The CUDA variants of attn_res_mix. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// A token's columns over a cluster of CTAs, rows in registers.
void attn_res_mix_cluster(const AttnResMixProblem& problem, const Target& target);
void attn_res_mix_cluster_resident(const AttnResMixProblem& problem, const Target& target);
void attn_res_mix_cluster_tight(const AttnResMixProblem& problem, const Target& target);
void attn_res_mix_cluster_tight_resident(const AttnResMixProblem& problem, const Target& target);
const char* attn_res_mix_cluster_refusal(const AttnResMixProblem& problem, const Target& target);

/// A token at a time in each SM, rows through a ring in shared memory.
void attn_res_mix_ring(const AttnResMixProblem& problem, const Target& target);
const char* attn_res_mix_ring_refusal(const AttnResMixProblem& problem, const Target& target);

/// Any strides, bases and numbers of rows.
void attn_res_mix_general(const AttnResMixProblem& problem, const Target& target);

/// Null where every row that the op reads or writes is aligned to 16 bytes; else which is not.
const char* unaligned_row(const AttnResMixProblem& problem);

}  // namespace k3::cuda
