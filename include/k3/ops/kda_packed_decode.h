// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// One step of the KDA recurrence for inputs that have passed their short convolution and SiLU:
/// the middle launch of an unfused decode, and the form for grouped value heads (Kimi Linear,
/// arXiv 2510.26692).
///
/// For request n with slot s = state_indices[n], value head j with q/k head h = j / (HV / H),
/// K = V = 128:
///
///   q <- scale * q / sqrt(sum q^2 + 1e-6),   k <- k / sqrt(sum k^2 + 1e-6)
///   x     = g[n, j, :] + dt_bias[j, :],   a = exp(A_log[j])
///   gate  = lower_bound * sigmoid(a x), or -a * softplus(x) where lower_bound is absent
///   S     <- S * exp(gate)          (per key channel; S is state[s, j], [V, K], K contiguous)
///   u     = (v - S k) * sigmoid(beta[n, j])
///   S     <- S + u k^T,   out[n, j] = bf16(S q)
///
/// Padding, slots, strides and aliasing are those of `kda_fused_decode`: a request with
/// state_indices[n] <= null_index gives a row of zeros and touches no pool; in device memory an
/// index past the pool counts as padding, in host memory it is a ContractError. On bf16 inputs that
/// `kda_fused_decode` would make (round_conv = bf16), both give the same state and, without output
/// norm, the same out, bit for bit.
///
/// H is read off the shapes: mixed_qkv has (2 H + HV) * 128 columns, and H divides HV.
struct KdaPackedDecodeArgs {
  ConstTensorView mixed_qkv;      ///< [B, (2*H + HV)*128] bf16, q then k then v, after SiLU
  ConstTensorView g;              ///< [B, HV*128] bf16, raw gate
  ConstTensorView beta;           ///< [B, HV] bf16, logits
  ConstTensorView A_log;          ///< [HV] f32; optional with lower_bound (then a = 1)
  ConstTensorView dt_bias;        ///< optional, [HV*128] or [HV, 128] f32
  TensorView state;               ///< [slots, HV, 128, 128] f32 or bf16; in place
  ConstTensorView state_indices;  ///< [B] i32
  TensorView out;                 ///< [B, HV*128] bf16

  std::optional<float> scale;        ///< 128^-0.5 where absent; finite
  std::optional<float> lower_bound;  ///< safe gate where given, finite and < 0. K3: -5
  int null_index = -1;               ///< >= -1; the largest index that means padding
};

/// Deterministic: the same call gives the same bits, whatever the number of threads.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void kda_packed_decode(const KdaPackedDecodeArgs& args, const ExecContext& ctx = {});
K3_API std::size_t kda_packed_decode_workspace_size(const KdaPackedDecodeArgs& args,
                                                    const ExecContext& ctx = {});

}  // namespace k3
