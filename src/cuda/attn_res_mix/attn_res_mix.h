// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/attn_res_mix.h"
#include "dispatch/kernel.h"

/// The CUDA variants of attn_res_mix. Each runs on `target.device` in `target.stream` and returns
/// after the launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses, at most 8 bank rows, 8192 columns, 65535 * 32768 tokens: one of the two
/// below.
void attn_res_mix_vec8(const AttnResMixProblem& problem, const Target& target);
const char* attn_res_mix_vec8_refusal(const AttnResMixProblem& problem, const Target& target);

/// A token's columns over a cluster of CTAs, rows in registers; 1 <= T < 2^31.
void attn_res_mix_cluster(const AttnResMixProblem& problem, const Target& target);

/// A token in a CTA, rows in registers and shared memory; H = 7168, 1 <= T < 2^31.
void attn_res_mix_cta(const AttnResMixProblem& problem, const Target& target);

/// Any strides, bases and numbers of rows.
void attn_res_mix_general(const AttnResMixProblem& problem, const Target& target);

/// Null where every row that the op reads or writes is aligned to 16 bytes; else which is not.
const char* unaligned_row(const AttnResMixProblem& problem);

}  // namespace k3::cuda
