// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// The factors W and U of the chunked delta rule (Kimi Linear, arXiv 2510.26692): per sequence,
/// chunk of 64 tokens and value head hv, with key head h = hv / (HV / H), the chunk's tokens j and
/// A the inverse (I + L)^-1 of kda_chunk_inverse,
///
///   w_i = sum_{j <= i} A_ij beta_j (k_j * exp(g_j))       u_i = sum_{j <= i} A_ij beta_j v_j
///
/// so that a chunk that starts from state S corrects it by U - W S. g is the cumulative gate of the
/// chunk: the sum of the log decays from its first token to j, j's own included.
///
/// Rounding: products and sums are fp32 (relative error below 2^-14 of the sum of absolute values),
/// w and u are rounded to bf16 once. CUDA multiplies with tensor cores: A beta and k exp(g) stand
/// there as sums of two bf16 values each, which keeps 16 bits of them; v is bf16 as it is.
///
/// Row t of A belongs to token t; column j to the j-th token of its chunk. Columns past t's own are
/// ignored, so no row of another chunk or sequence is ever read. A NaN or Inf may spread over its
/// own chunk and head, and no further.
///
/// Sequences: without cu_seqlens every batch row is one (N = B). With it, B = 1 and sequence n is
/// tokens cu_seqlens[n] .. cu_seqlens[n + 1]; cu_seqlens[0] = 0, never decreasing, last = T. Chunks
/// restart with each sequence; the last one of a sequence may be short. Values in host memory are
/// checked. Values in device memory are never read by the host: there a boundary is clamped to
/// [0, T] and a length to at least 0; where boundaries decrease, tokens may stay unwritten.
///
/// Range: arithmetic is fp32, so sums of products must stay below 3e38.
///
/// Strides: unit along the last axis; all but beta: 16-byte aligned base and strides, so that
/// slices of one merged projection work; beta: any. w and u must overlap no other tensor.
struct KdaRecomputeWuArgs {
  ConstTensorView k;           ///< [B, T, H, 128] bf16
  ConstTensorView v;           ///< [B, T, HV, 128] bf16, HV a multiple of H
  ConstTensorView g;           ///< [B, T, HV, 128] f32, cumulative, <= 0; minus infinity is allowed
  ConstTensorView beta;        ///< optional, [B, T, HV] f32 or bf16; absent: A has it already
  ConstTensorView A;           ///< [B, T, HV, 64] f32 or bf16
  ConstTensorView cu_seqlens;  ///< optional, [N+1] i32 or i64
  TensorView w;                ///< [B, T, HV, 128] bf16
  TensorView u;                ///< [B, T, HV, 128] bf16
};

/// Deterministic: the same call gives the same bits, whatever the number of threads, and a sequence
/// the same bits alone and in a batch.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void kda_recompute_wu(const KdaRecomputeWuArgs& args, const ExecContext& ctx = {});
K3_API std::size_t kda_recompute_wu_workspace_size(const KdaRecomputeWuArgs& args,
                                                   const ExecContext& ctx = {});

}  // namespace k3
