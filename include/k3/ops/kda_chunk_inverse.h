// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// The triangular inverse of the chunked delta rule, of many matrices of 64 x 64:
///
///   out = (I + L)^-1 diag(beta)           (a column scale; without beta the inverse itself)
///
/// of the strictly lower part of L: what stands on or above its diagonal is ignored, whatever it
/// is. Above the diagonal of out stand exact zeros.
///
/// fp32 inside: operands are widened, substituted forward, multiplied by beta, rounded once to the
/// dtype of out. No power of L is ever formed, so equal keys with beta near 1 cost no accuracy. The
/// CPU substitutes over all 64 rows; CUDA does so in the four diagonal blocks of 16 and joins them
/// 16 -> 32 -> 64 by [[X, 0], [-Y B X, Y]], in fp32 too.
///
/// A tail row i past a sequence's end, with zeros in L and beta_i = 0, gives a row e_i beta_i = 0.
/// A NaN or Inf below the diagonal may spread to every element on or below the diagonal of its own
/// matrix, and to no other. Range: entries of the inverse must stay below 3e38.
///
/// Strides: L and out unit along the last axis, else any; beta any. No tensor needs more alignment
/// than its element. With strides (T*HV*64, 64*HV*64, 64, HV*64, 1) a rank-5 out is the matrix A
/// [B, T, HV, 64] of kda_recompute_wu, T a multiple of 64. out may be L itself (same memory, dtype
/// and strides), else they must not overlap.
struct KdaChunkInverseArgs {
  ConstTensorView L;     ///< [M, 64, 64], [NT, M, 64, 64] or [B, NT, M, 64, 64], f32 or bf16
  ConstTensorView beta;  ///< optional, L's leading axes and [64], f32 or bf16
  TensorView out;        ///< shape of L, f32 or bf16
};

/// Deterministic: the same call gives the same bits, whatever the number of threads.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void kda_chunk_inverse(const KdaChunkInverseArgs& args, const ExecContext& ctx = {});
K3_API std::size_t kda_chunk_inverse_workspace_size(const KdaChunkInverseArgs& args,
                                                    const ExecContext& ctx = {});

}  // namespace k3
