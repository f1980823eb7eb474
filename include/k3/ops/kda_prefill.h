// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "k3/context.h"
#include "k3/export.h"
#include "k3/ops/kda_types.h"
#include "k3/tensor.h"

namespace k3 {

/// KDA prefill: the gated delta rule over whole sequences (Kimi Linear, arXiv 2510.26692).
///
/// Per sequence and value head hv, with q/k head h = hv / (HV / H), K = V = 128, S [K, V] in fp32:
///
///   q, k  <- x / sqrt(sum x^2 + 1e-6) where qk_l2norm;   q <- scale * q
///   g     is the log decay (<= 0), or, where gate_in_kernel, with x = g + dt_bias[hv, :] and
///         a = exp(A_log[hv]):  lower_bound * sigmoid(a x), or -a * softplus(x) without lower_bound
///   beta  <- sigmoid(beta) where beta_sigmoid; 2 sigmoid(beta) where also allow_neg_eigval
///   S     <- diag(exp(g_t)) S
///   S     <- S + k_t (beta_t (v_t - S^T k_t))^T
///   o_t   = S^T q_t                                        (reads the updated state)
///
/// Sequences: without cu_seqlens every batch row is one (N = B). With it, B = 1 and sequence n is
/// tokens cu_seqlens[n] .. cu_seqlens[n + 1]; cu_seqlens[0] = 0, never decreasing, last = T. An
/// empty sequence copies its state through. The bits of a sequence depend on that sequence alone.
/// Values in host memory are checked. Values in device memory are never read by the host: there a
/// boundary of cu_seqlens is clamped to [0, T] and a length to at least 0, a slot past the pool
/// counts as padding, a track index that is out of range writes nothing, and no row past the end
/// of chunk_states is written.
///
/// State: zero where initial_state is absent. Without state_indices both states have N rows; with
/// it they are pools and sequence n uses slot state_indices[n]; a negative slot is padding: that
/// sequence starts from zero and writes no final state (its out, chunk and tracked rows are
/// written). final_state may be initial_state itself (same pointer and strides); any other overlap
/// of an output with another tensor is refused. Duplicate slots are a caller error (undefined).
///
/// Range: arithmetic is fp32, so sums of squares of q, k and products with v must stay below 3e38.
///
/// Strides: unit along the last axis; q, k, v, g, out: 16-byte aligned base and strides, so that
/// slices of one merged projection work; beta: any; states: inner strides (16384, 128, 1), any slot
/// stride, no alignment beyond the element. Gates may be anything <= 0, minus infinity included.
struct KdaPrefillArgs {
  ConstTensorView q;           ///< [B, T, H, 128] bf16
  ConstTensorView k;           ///< [B, T, H, 128] bf16
  ConstTensorView v;           ///< [B, T, HV, 128] bf16, HV a multiple of H
  ConstTensorView g;           ///< [B, T, HV, 128] or [B, T, HV*128], bf16 or f32
  ConstTensorView beta;        ///< [B, T, HV] bf16 or f32
  ConstTensorView A_log;       ///< [HV] f32; with gate_in_kernel only; needed without lower_bound
  ConstTensorView dt_bias;     ///< optional, [HV, 128] or [HV*128] f32; with gate_in_kernel only
  ConstTensorView cu_seqlens;  ///< optional, [N+1] i32 or i64
  ConstTensorView initial_state;    ///< optional, [N or slots, HV, 128, 128] f32 or bf16
  ConstTensorView state_indices;    ///< optional, [N] i32
  ConstTensorView track_chunk_idx;  ///< [N] i32, given exactly when tracked_states is; -1 = none
  TensorView out;                   ///< [B, T, HV, 128] bf16
  TensorView final_state;           ///< optional, shape and dtype as initial_state
  /// Optional, [rows, HV, 128, 128] f32 or bf16: for each sequence in order, the state after
  /// 0, 64, 128, ... tokens, as long as that is less than its length; rows >= sum ceil(len / 64).
  TensorView chunk_states;
  /// Optional, [N, HV, 128, 128] f32: the state after track_chunk_idx[n] * 64 tokens (<= length).
  TensorView tracked_states;

  std::optional<float> scale;  ///< 128^-0.5 where absent; finite
  std::optional<float>
      lower_bound;  ///< safe gate; with gate_in_kernel only; finite and < 0. K3: -5
  bool qk_l2norm = false;
  bool gate_in_kernel = false;
  bool beta_sigmoid = false;
  bool allow_neg_eigval = false;  ///< needs beta_sigmoid
  StateLayout state_layout = StateLayout::kVK;
};

/// Deterministic: the same call gives the same bits, whatever the number of threads.
/// @throws ContractError, UnsupportedError, CudaError; on ContractError nothing was written.
K3_API void kda_prefill(const KdaPrefillArgs& args, const ExecContext& ctx = {});

/// Bytes that `ctx.workspace` must hold for every call with these shapes, dtypes and threads. Asks
/// for no memory: the tensors' pointers may be null, and no value is read.
K3_API std::size_t kda_prefill_workspace_size(const KdaPrefillArgs& args,
                                              const ExecContext& ctx = {});

}  // namespace k3
