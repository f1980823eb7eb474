// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/mla_cache_write_concat_q.h"
#include "dispatch/kernel.h"

/// The CUDA variants of mla_cache_write_concat_q. Each runs on `target.device` in `target.stream`
/// and returns after the launch. @throws CudaError
namespace k3::cuda {

/// 16-byte accesses: 8 elements a thread, of fp8 16.
void mla_cache_write_concat_q_vector(const MlaCacheWriteConcatQProblem& problem,
                                     const Target& target);
const char* mla_cache_write_concat_q_vector_refusal(const MlaCacheWriteConcatQProblem& problem,
                                                    const Target& target);

/// One element at a time: any widths, strides and bases.
void mla_cache_write_concat_q_scalar(const MlaCacheWriteConcatQProblem& problem,
                                     const Target& target);

}  // namespace k3::cuda
