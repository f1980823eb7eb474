// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/pdl.cuh"
#include "cuda/kda_verify/task.cuh"

/// The making of tokens: all that the chain needs of one, and the traces it leaves in rings and
/// windows. Four warps make a token together, by role; with several groups of four, group i takes
/// the tokens i, i + groups, ...
///
///   0  q: convolution, SiLU, norm, scale
///   1  k: convolution, SiLU, norm; then k . q
///   2  v of the CTA's rows: convolution, SiLU
///   3  decay, beta; output gate of the CTA's rows
///
/// In a cluster every CTA makes q, k and decay of all tokens; rank 0 leaves their traces.
namespace k3::cuda {

enum VerifyRole { kQuery = 0, kKey = 1, kValue = 2, kGates = 3 };

/// The four channels of q, k or v that a lane convolves, token after token of its group. The taps
/// that the next token brings are on their way while this one is made.
template <class Traits>
class VerifyConvolution {
  using Access = typename Traits::Access;
  static constexpr int kStep = Traits::kTokenGroups;  ///< tokens from one to the next
  static constexpr int kNew = kStep < kKdaConvWidth ? kStep : kKdaConvWidth;  ///< taps of the next

 public:
  /// Asks for the window of token t, which reaches back into the slot's.
  /// @param channel  in q|k|v
  __device__ VerifyConvolution(const KdaVerifyProblem& p, const VerifyRequest& request, int channel,
                               bool leaves_traces, int t)
      : weights_(
            load_conv_weights<Access>(p.conv_weight + channel, p.conv_weight_stride,
                                      p.conv_bias != nullptr ? p.conv_bias + channel : nullptr)),
        raw_(p.mixed_qkv + request.begin * p.mixed_qkv_stride + channel) {
    const bf16* const window = p.conv_states + request.slot * p.conv_slot_stride + channel;
#pragma unroll
    for (int tap = 0; tap < kKdaConvWidth; ++tap) {
      const int at = t - (kKdaConvWidth - 1) + tap;
      taps_.tap[tap] = Access::load(at < 0 ? window + (at + kKdaConvWidth - 1) * p.conv_tap_stride
                                           : raw_ + at * p.mixed_qkv_stride);
    }
    if (leaves_traces && request.scratch_row >= 0 && request.scratch_row < p.conv_scratch_rows)
      scratch_ = p.conv_scratch + request.scratch_row * p.conv_scratch_row_stride + channel;
  }

  /// Asks for what token t >= kStep brings that the group's last one had not.
  __device__ void ask(const KdaVerifyProblem& p, int t) {
#pragma unroll
    for (int i = 0; i < kNew; ++i)
      next_[i] = Access::load(raw_ + (t - (kNew - 1) + i) * p.mixed_qkv_stride);
  }

  /// Convolution and SiLU of token t; leaves its window.
  __device__ float4 make(const KdaVerifyProblem& p, int t) const {
    if (scratch_ != nullptr) {
      // Where taps and tokens share their stride, a window's first taps stand there already.
      const bool all_taps = t == 0 || p.conv_scratch_token_stride != p.conv_scratch_tap_stride;
      bf16* const to = scratch_ + t * p.conv_scratch_token_stride;
      if (all_taps) {
        Access::store(to, taps_.tap[1]);
        Access::store(to + p.conv_scratch_tap_stride, taps_.tap[2]);
      }
      Access::store(to + 2 * p.conv_scratch_tap_stride, taps_.tap[3]);
    }
    return conv_silu(weights_, taps_, p.round_conv);
  }

  /// To the token that was asked for.
  __device__ void advance() {
#pragma unroll
    for (int tap = 0; tap < kKdaConvWidth; ++tap)
      taps_.tap[tap] =
          tap + kNew < kKdaConvWidth ? taps_.tap[tap + kNew] : next_[tap + kNew - kKdaConvWidth];
  }

 private:
  ConvWeightQuad weights_;
  ConvQuad taps_;
  Bf16Quad next_[kNew];
  const bf16* raw_;          ///< of the request's first token
  bf16* scratch_ = nullptr;  ///< of token 0, or null
};

/// Says that this lane's part of token t stands in shared memory.
template <class Traits>
__device__ void hand_over(const VerifyTask<Traits>& task, int t) {
  mbarrier_arrive(&task.shared->token_made[task.stage][t]);
}

/// Role q, k or v over the tokens of a request.
template <class Traits, int kRole>
__device__ void make_vectors(const KdaVerifyProblem& p, const VerifyTask<Traits>& task,
                             const VerifyRequest& request, int group) {
  using Access = typename Traits::Access;
  constexpr int kRowQuads = Traits::kRows / 4;
  const bool has_rows = kRole != kValue || task.lane < kRowQuads;
  const int quad = kRole == kValue ? task.first_row() / 4 + task.lane % kRowQuads : task.lane;
  const int channel = (kRole * p.H + task.head) * kHeadDim + 4 * quad;
  const bool leaves_traces = kRole == kValue ? has_rows : task.rank == 0;
  VerifyConvolution<Traits> convolution(p, request, channel, leaves_traces, group);
  bf16* ring = nullptr;
  if (kRole != kQuery && leaves_traces && request.ring_row >= 0)
    ring = (kRole == kKey ? p.ring_k + request.ring_row * p.ring_k_row_stride
                          : p.ring_v + request.ring_row * p.ring_v_row_stride) +
           std::int64_t{task.head} * p.ring_len * kHeadDim + 4 * quad;

  for (int t = group; t < request.length; t += Traits::kTokenGroups) {
    if (t + Traits::kTokenGroups < request.length) convolution.ask(p, t + Traits::kTokenGroups);
    const float4 y = convolution.make(p, t);
    if (ring != nullptr) Access::store(ring + t * kHeadDim, narrow(y));
    auto& token = task.token(t);
    if constexpr (kRole == kQuery) {
      token.q.set(task.lane, normalised_query(y, p.scale));
      mbarrier_arrive(&task.shared->query_made[task.stage][t]);
    } else if constexpr (kRole == kKey) {
      const float4 k = normalised_key(y);
      token.k.set(task.lane, k);
      mbarrier_wait(&task.shared->query_made[task.stage][t], task.parity);
      const float qk = warp::sum(t128_group(k, token.q.get(task.lane)));
      if (task.lane == 0) token.qk = qk;
    } else if (has_rows) {
      reinterpret_cast<float4*>(task.v(t))[task.lane] = y;
    }
    hand_over(task, t);
    convolution.advance();
  }
}

/// Gates of a token as they are read.
struct VerifyGates {
  Bf16Quad g;
  Bf16Quad onorm;
  float beta;
};

/// Role 3 over the tokens of a request.
template <class Traits>
__device__ void make_gates(const KdaVerifyProblem& p, const VerifyTask<Traits>& task,
                           const VerifyRequest& request, int group) {
  using Access = typename Traits::Access;
  constexpr int kRowQuads = Traits::kRows / 4;
  const int row_quad = task.first_row() / 4 + task.lane % kRowQuads;
  const int channel = task.head * kHeadDim + 4 * task.lane;
  const bool has_norm = p.onorm_gate != nullptr;
  const Gate gate = {gate_scale(p.A_log, task.head), p.lower_bound, p.has_lower_bound};
  const float4 bias =
      p.dt_bias != nullptr ? Access::load(p.dt_bias + channel) : float4{0.0F, 0.0F, 0.0F, 0.0F};
  float4 onorm_weight = {};
  if (has_norm) onorm_weight = Access::load(p.onorm_weight + 4 * row_quad);
  const auto load = [&](int t) {
    const std::int64_t row = request.begin + t;
    VerifyGates gates = {};
    gates.g = Access::load(p.g + row * p.g_stride + channel);
    gates.beta = widen(p.beta[row * p.beta_stride + task.head]);
    if (has_norm)
      gates.onorm = Access::load(p.onorm_gate + row * p.onorm_gate_stride + task.head * kHeadDim +
                                 4 * row_quad);
    return gates;
  };
  const bool has_ring = task.rank == 0 && request.ring_row >= 0;
  const std::int64_t ring = request.ring_row * p.ring_g_row_stride +
                            std::int64_t{task.head} * p.ring_len * kHeadDim + 4 * task.lane;

  VerifyGates next = {};
  if (group < request.length) next = load(group);
  for (int t = group; t < request.length; t += Traits::kTokenGroups) {
    const VerifyGates gates = next;
    if (t + Traits::kTokenGroups < request.length) next = load(t + Traits::kTokenGroups);
    auto& token = task.token(t);
    const float4 log_decay = map(widen(gates.g) + bias, gate);
    token.decay.set(task.lane, decay_of(log_decay));
    const float beta = sigmoid(gates.beta);
    if (task.lane == 0) token.beta = beta;
    if (has_norm && task.lane < kRowQuads)
      reinterpret_cast<float4*>(task.gate(t))[task.lane] =
          map(widen(gates.onorm), sigmoid) * onorm_weight;
    hand_over(task, t);
    if (!has_ring) continue;
    if (p.ring_g_dtype == DType::kF32)
      Access::store(static_cast<float*>(p.ring_g) + ring + t * kHeadDim, log_decay);
    else
      Access::store(static_cast<bf16*>(p.ring_g) + ring + t * kHeadDim, gates.g);
    if (task.lane == 0)
      p.ring_beta[request.ring_row * p.ring_beta_row_stride + task.head * p.ring_beta_head_stride +
                  t * p.ring_beta_token_stride] = beta;
  }
}

template <class Traits>
__device__ void make_tokens(const KdaVerifyProblem& p, VerifyTask<Traits> task, int step_n,
                            int step_head) {
  const int role = task.warp % 4;
  const int group = task.warp / 4;
  for (; task.n < p.N; task.advance(p, step_n, step_head)) {
    mbarrier_wait(&task.shared->stage_free[task.stage], task.parity ^ 1U);
    const VerifyRequest request = find_request(p, task.n);
    if (task.warp == kGates && task.lane == 0) {
      task.shared->requests[task.stage] = request;
      mbarrier_arrive(&task.shared->request_known[task.stage]);
      if (request.is_live) prefetch_rows(p, task, request.slot);
    }
    // The next grid, or what of it finds room, once the last heads are begun.
    if (task.n + step_n + 1 >= p.N) pdl_launch_dependents();
    if (request.is_live) {
      switch (role) {
        case kQuery:
          make_vectors<Traits, kQuery>(p, task, request, group);
          break;
        case kKey:
          make_vectors<Traits, kKey>(p, task, request, group);
          break;
        case kValue:
          make_vectors<Traits, kValue>(p, task, request, group);
          break;
        default:
          make_gates(p, task, request, group);
      }
    }
    // Tokens that the request has not: their barriers go through every phase all the same.
    if (task.lane >= (request.is_live ? request.length : 0) && task.lane < task.max_tokens &&
        task.lane % Traits::kTokenGroups == group) {
      mbarrier_arrive(&task.shared->token_made[task.stage][task.lane], 32);
      if (role == kQuery) mbarrier_arrive(&task.shared->query_made[task.stage][task.lane], 32);
    }
  }
}

}  // namespace k3::cuda
