// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/ops/kda_types.h"
#include "k3/tensor.h"

namespace k3 {

/// One decode step of a KDA layer: short convolution, SiLU, gated delta-rule recurrence and gated
/// output norm, in one pass over the paged state (Kimi Linear, arXiv 2510.26692; K3 technical
/// report).
///
/// For request n with slot s = state_indices[n], head h, K = V = 128, channel c of q|k|v:
///
///   y[c]  = SiLU(conv_bias[c] + sum_{w<3} conv_states[s, w, c] conv_weight[w, c]
///                + mixed_qkv[n, c] conv_weight[3, c])              rounded by round_conv
///   conv_states[s, :, c] <- (tap 1, tap 2, mixed_qkv[n, c])        bit-exact copies, oldest first
///   q <- scale * q / sqrt(sum q^2 + 1e-6),   k <- k / sqrt(sum k^2 + 1e-6)
///   x     = g[n, h, :] + dt_bias[h, :],   a = exp(A_log[h])
///   gate  = lower_bound * sigmoid(a x), or -a * softplus(x) where lower_bound is absent
///   S     <- S * exp(gate)          (per key channel; S is state[s, h], [V, K], K contiguous)
///   u     = (v - S k) * sigmoid(beta[n, h])
///   S     <- S + u k^T,   o = S q                                  o rounded by round_o
///   out   = bf16( o * rsqrt(mean o^2 + eps_o) * onorm_weight * sigmoid(onorm_gate) ),
///           or bf16(o) where onorm_gate is absent
///
/// A request with state_indices[n] <= null_index is padding: its row of out is zeros and no pool is
/// touched. Slots no request names keep every bit. Two live requests with one slot are a caller
/// error (the result is undefined). In device memory an index past the pool counts as padding; in
/// host memory it is a ContractError.
///
/// Range: arithmetic is fp32, so sums of squares of q, k and o must stay below 3e38, A_log below
/// 88, and with eps_o = 0 a head's o must not be all zeros.
///
/// Strides: unit along the last axis of every tensor but state_indices; rows, slots and taps may
/// have any stride; dt_bias is dense; the state's inner strides are (16384, 128, 1). No tensor
/// needs more alignment than its element. The pools are updated in place and must not overlap each
/// other, out, or an input.
struct KdaFusedDecodeArgs {
  ConstTensorView mixed_qkv;      ///< [B, 3*H*128] bf16, raw projections, channels q then k then v
  TensorView conv_states;         ///< [slots, 3, 3*H*128] bf16, raw inputs, oldest first; in place
  ConstTensorView conv_weight;    ///< [4, 3*H*128] f32, tap 3 meets the newest token
  ConstTensorView conv_bias;      ///< optional, [3*H*128] f32
  ConstTensorView g;              ///< [B, H*128] bf16, raw gate
  ConstTensorView beta;           ///< [B, H] bf16, logits
  ConstTensorView A_log;          ///< [H] f32; optional with lower_bound (then a = 1)
  ConstTensorView dt_bias;        ///< optional, [H*128] or [H, 128] f32
  ConstTensorView onorm_gate;     ///< optional, [B, H*128] bf16, logits of the output gate
  ConstTensorView onorm_weight;   ///< [128] f32, given exactly when onorm_gate is
  TensorView state;               ///< [slots, H, 128, 128] f32 or bf16; in place
  ConstTensorView state_indices;  ///< [B] i32
  TensorView out;                 ///< [B, H*128] bf16

  std::optional<float> scale;        ///< 128^-0.5 where absent; finite
  std::optional<float> lower_bound;  ///< safe gate where given, finite and < 0. K3: -5
  float eps_o = 1e-5F;               ///< of the output norm; finite, >= 0. K3: 1e-5
  Rounding round_conv = Rounding::kBF16;
  Rounding round_o = Rounding::kF32;
  int null_index = -1;  ///< >= -1; the largest index that means padding
};

/// Deterministic: the same call gives the same bits, whatever the number of threads.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void kda_fused_decode(const KdaFusedDecodeArgs& args, const ExecContext& ctx = {});
K3_API std::size_t kda_fused_decode_workspace_size(const KdaFusedDecodeArgs& args,
                                                   const ExecContext& ctx = {});

}  // namespace k3
