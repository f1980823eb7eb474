// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/tensor.h"

namespace k3 {

/// Takes over the accepted prefix of a verified chain: folds it into the state, exactly, and rolls
/// the convolution windows to the same token (ReplaySSM). One layer, or all layers of a rank in one
/// call.
///
/// For request n with slot s = state_indices[n], ring row r = ring_indices[n] (s where absent) and
/// A = accept_lens[n] <= L tokens, value head j with k head h = j / (HV / H), K = V = 128, for
/// t = 0 .. A - 1:
///
///   k     = ring_k[r, h, t] / sqrt(sum ring_k^2 + 1e-6), or ring_k[r, h, t] without qk_l2norm
///   S     <- S * exp(gate)          (per key channel; S is state[s, j], [V, K], K contiguous)
///   u     = (ring_v[r, j, t] - S k) * ring_beta[r, j, t]
///   S     <- S + u k^T              a bf16 state is rounded after every token
///
/// where gate = ring_g[r, j, t], <= 0, if ring_g is fp32, and is made of the raw gate as in
/// `kda_fused_decode` (A_log, dt_bias, lower_bound) if it is bf16. The operations, their order and
/// their rounding are those of `kda_fused_decode`, so the state equals, bit for bit, the one after
/// A decode steps on the tokens that `kda_verify` saw.
///
/// With conv_states: conv_states[s] <- conv_scratch[c, A - 1], c = scratch_indices[n] (n where
/// absent). With track_indices: where 0 <= track_steps[n] < A, the state after token track_steps[n]
/// (and that token's window) also goes to slot track_indices[n].
///
/// Nothing is written where A <= 0, where state_indices[n] <= null_index (padding), or to a slot
/// track_indices[n] <= null_index; what the other lists hold for such a request does not matter. In
/// host memory a wrong index, A > L (or the scratch's token axis) or a track step >= L is a
/// ContractError; in device memory a state or ring index outside its rows skips the request, a
/// track index past the pool is no track, a scratch index outside its rows rolls no window, and A
/// is clamped to L; a window past the scratch's token axis is its last one. Slots that no request
/// names keep every bit. No two live requests may share a slot, tracked slots included, and a slot
/// tracked is not the request's own.
///
/// Strides: the leading axes (layers, slots, rows, and the windows' tokens and taps) are free and
/// 64-bit; a layer may stand inside a slot or a slot inside a layer. The rest is dense, ring_beta
/// from its heads on too; index lists may have any stride. No tensor needs more alignment than its
/// element. The pools must not overlap each other or an input.
struct KdaReplayCommitArgs {
  TensorView state;           ///< [(layers,) slots, HV, 128, 128] f32 or bf16; in place
  ConstTensorView ring_k;     ///< [(layers,) ring_rows, H, L, 128] bf16 or f32; H divides HV
  ConstTensorView ring_v;     ///< [(layers,) ring_rows, HV, L, 128], dtype of ring_k
  ConstTensorView ring_g;     ///< [(layers,) ring_rows, HV, L, 128] f32 log decay, or bf16 raw gate
  ConstTensorView ring_beta;  ///< [(layers,) ring_rows, HV, L] f32, activated
  ConstTensorView state_indices;    ///< [B] i32
  ConstTensorView ring_indices;     ///< optional, [B] i32
  ConstTensorView accept_lens;      ///< [B] i32, tokens to take over, the bonus token included
  ConstTensorView track_indices;    ///< optional, [B] i32
  ConstTensorView track_steps;      ///< [B] i32, given exactly when track_indices is
  TensorView conv_states;           ///< optional, [(layers,) slots, 3, C] bf16; in place
  ConstTensorView conv_scratch;     ///< [(layers,) rows, Ts, 3, C] bf16, given exactly then
  ConstTensorView scratch_indices;  ///< optional, [B] i32; without, rows >= B
  ConstTensorView A_log;    ///< with a bf16 ring_g, as in kda_fused_decode: [(layers,) HV] f32
  ConstTensorView dt_bias;  ///< with a bf16 ring_g, optional: [(layers,) HV*128] f32

  std::optional<float> lower_bound;  ///< with a bf16 ring_g: the safe gate where given
  bool qk_l2norm = true;
  int null_index = -1;  ///< >= -1; the largest index that means padding
};

/// Deterministic: the same call gives the same bits, whatever the number of threads.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void kda_replay_commit(const KdaReplayCommitArgs& args, const ExecContext& ctx = {});
K3_API std::size_t kda_replay_commit_workspace_size(const KdaReplayCommitArgs& args,
                                                    const ExecContext& ctx = {});

}  // namespace k3
