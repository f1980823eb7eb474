// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/ops/kda_types.h"
#include "k3/tensor.h"

namespace k3 {

/// The longest run of tokens that one request may have in `kda_verify`.
inline constexpr int kKdaMaxVerifyTokens = 16;

/// Verifies drafts: runs `kda_fused_decode` over a chain of up to 16 tokens a request, from the
/// committed convolution window and state of its slot, without changing either. Every token gets
/// its output; what a later `kda_replay_commit` needs to take over a prefix of the chain is written
/// to scratch memory (Kimi Linear, arXiv 2510.26692; K3 technical report, speculative decoding).
///
/// Request n owns the tokens query_start_loc[n] .. query_start_loc[n + 1] (rows of mixed_qkv, g,
/// beta, onorm_gate and out), at most max_query_len of them. Token t of the chain sees the window
/// and the state that token t - 1 left; a bf16 state is rounded after every token. So out holds,
/// bit for bit, what the same number of `kda_fused_decode` calls would give.
///
/// Side outputs, of token t and head h, each optional:
///   ring_k[r, h, t, :]     = bf16(k after convolution and SiLU, before its norm), ring_v the same
///   ring_g[r, h, t, :]     = the log decay in fp32, or g itself where ring_g is bf16
///   ring_beta[r, h, t]     = sigmoid(beta) in fp32
///   conv_scratch[c, t, w]  = tap w, oldest first, of the window after token t
///   snapshots[c, t, h]     = the state after token t
/// with r = ring_indices[n] (state_indices[n] where absent) and c = scratch_indices[n] (n where
/// absent; conv_scratch and snapshots then have at least N rows). The four rings come together;
/// with snapshots there are none. With round_conv = f32 the rings hold rounded values and a replay
/// is no longer exact.
///
/// A request with state_indices[n] <= null_index is padding: its rows of out are zeros and it
/// writes nothing else. Rows of out that belong to no request, scratch rows that no request names
/// and scratch positions past a request's tokens keep every bit. In host memory a wrong index, a
/// decreasing query_start_loc, one that leaves the tokens, or a request longer than max_query_len
/// is a ContractError. In device memory a state index past the pool counts as padding, a scratch or
/// ring index outside its rows writes nothing there, and query_start_loc is clamped to the tokens
/// and to max_query_len. No two live requests may share a scratch or ring row.
///
/// Strides: unit along the last axis of every tensor but the index lists; state, snapshots and
/// rings are dense from their head axis on, but ring_beta's strides (a commit needs it dense) and
/// all others are free. conv_scratch may have equal strides for its token and tap axes: Ts + 2 taps
/// then hold every window once. No tensor needs more alignment than its element. Written tensors
/// must not overlap each other or an input.
struct KdaVerifyArgs {
  ConstTensorView mixed_qkv;        ///< [tokens, 3*H*128] bf16, raw projections, q then k then v
  ConstTensorView conv_states;      ///< [slots, 3, 3*H*128] bf16, raw inputs, oldest first
  ConstTensorView conv_weight;      ///< [4, 3*H*128] f32, tap 3 meets the newest token
  ConstTensorView conv_bias;        ///< optional, [3*H*128] f32
  ConstTensorView g;                ///< [tokens, H*128] bf16, raw gate
  ConstTensorView beta;             ///< [tokens, H] bf16, logits
  ConstTensorView A_log;            ///< [H] f32; optional with lower_bound (then a = 1)
  ConstTensorView dt_bias;          ///< optional, [H*128] or [H, 128] f32
  ConstTensorView onorm_gate;       ///< optional, [tokens, H*128] bf16
  ConstTensorView onorm_weight;     ///< [128] f32, given exactly when onorm_gate is
  ConstTensorView state;            ///< [slots, H, 128, 128] f32 or bf16
  ConstTensorView state_indices;    ///< [N] i32
  ConstTensorView query_start_loc;  ///< [N + 1] i32
  TensorView ring_k;                ///< optional, [ring_rows, H, L, 128] bf16, L >= max_query_len
  TensorView ring_v;                ///< optional, [ring_rows, H, L, 128] bf16
  TensorView ring_g;                ///< optional, [ring_rows, H, L, 128] f32 or bf16
  TensorView ring_beta;             ///< optional, [ring_rows, H, L] f32
  ConstTensorView ring_indices;     ///< optional, [N] i32
  TensorView conv_scratch;          ///< optional, [rows, Ts, 3, 3*H*128] bf16, Ts >= max_query_len
  TensorView snapshots;             ///< optional, [rows, Ts, H, 128, 128], the dtype of state
  ConstTensorView scratch_indices;  ///< optional, [N] i32
  TensorView out;                   ///< [tokens, H*128] bf16

  std::optional<float> scale;        ///< 128^-0.5 where absent; finite
  std::optional<float> lower_bound;  ///< safe gate where given, finite and < 0. K3: -5
  float eps_o = 1e-5F;               ///< of the output norm; finite, >= 0. K3: 1e-5
  Rounding round_conv = Rounding::kBF16;
  Rounding round_o = Rounding::kF32;
  int null_index = -1;  ///< >= -1; the largest index that means padding
  /// 1 .. 16, the most tokens of one request; 0: tokens / N, which must then be whole.
  int max_query_len = 0;
};

/// Deterministic: the same call gives the same bits, whatever the number of threads.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void kda_verify(const KdaVerifyArgs& args, const ExecContext& ctx = {});
K3_API std::size_t kda_verify_workspace_size(const KdaVerifyArgs& args,
                                             const ExecContext& ctx = {});

}  // namespace k3
