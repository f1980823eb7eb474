// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// SiTU-GLU (situ_and_mul.h) with its result quantised to fp8 in groups of 128, in one pass: what
/// stands between the two products of the experts of a K3 layer (Kimi K3 technical report, arXiv
/// 2607.24653).
///
///   v    = beta * tanh(gate / beta) * sigmoid(gate) * linear_beta * tanh(up / linear_beta)
///   amax = max(1e-10, max |v|) over 128 neighbouring columns; NaN is ignored
///   fp32 scales    s = amax * (1 / 448),          q = e4m3( clamp(v * (448 / amax), -448, 448) )
///   UE8M0 scales   s = 2^(b - 127) >= amax / 448,  q = e4m3( clamp(v / s, -448, 448) )
///
/// v stays in fp32 unless round_to_bf16 asks for the rounding that a bf16 tensor between the two
/// steps would bring. NaN in v gives +448, never the NaN of fp8. Scales and codes are those of
/// per_token_group_quant.h.
///
/// With masked_m the rows are those of experts: of [E, Tp] rows, expert e's first masked_m[e] are
/// live. Dead rows are neither read nor written: their outputs keep their bytes. Any E, and any
/// number of live rows up to E * Tp. Without masked_m there is no expert axis and all rows are
/// live.
///
/// A row of input is gate in its first N columns and up in its last N; with swizzle every run of 16
/// columns is gate in its first 8 and up in its last 8, and output columns 8j..8j+7 come from run
/// j. Transposed scales pack the exponent bytes b of four neighbouring groups in a word, the lowest
/// group in the lowest byte, zeros behind the last; their row axis comes last.
///
/// Pointers need no more alignment than their elements; on CUDA rows of input and output_q on 16
/// bytes run on the vector path. Values of masked_m in device memory are held to 0..Tp.
struct SituMulQuantArgs {
  ConstTensorView input;  ///< [E, Tp, 2N] bf16, or [M, 2N]; last stride 1, others any; N % 128 = 0
  ConstTensorView masked_m;  ///< [E] i32, 0..Tp each; exactly with an expert axis
  TensorView output_q;       ///< [E, Tp, N] e4m3, or [M, N]; strides as of input; no overlaps
  /// [E, Tp, G] f32 with G = N / 128, or [M, G]; transposed: [E, ceil(G/4), Tp] i32, or
  /// [ceil(G/4), M]; any strides
  TensorView output_s;
  int group_size = 128;      ///< 128
  bool scale_ue8m0 = false;  ///< power-of-two scales
  bool transposed = false;   ///< packed scales; needs scale_ue8m0
  bool swizzle = false;
  bool round_to_bf16 = false;
  float beta = 4.0F;          ///< soft cap of the gate; finite, not 0. K3: 4
  float linear_beta = 25.0F;  ///< soft cap of up; finite, not 0. K3: 25
};

/// Deterministic; bits depend on the backend alone. No workspace.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void situ_mul_quant(const SituMulQuantArgs& args, const ExecContext& ctx = {});
K3_API std::size_t situ_mul_quant_workspace_size(const SituMulQuantArgs& args,
                                                 const ExecContext& ctx = {});

}  // namespace k3
