// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_replay_commit.h"

#include <cmath>

#include "oracle/element.h"
#include "oracle/kda_gate.h"
#include "oracle/oracle.h"

namespace k3::oracle {
namespace {

using Problem = KdaReplayCommitProblem;
constexpr int kD = kKdaHeadDim;

struct Token {
  double k[kD], v[kD], decay[kD], beta;
};

Token load_token(const Problem& p, int layer, std::int64_t row, int j, int t) {
  const std::int64_t of_value = std::int64_t{j} * p.L + t;
  const std::int64_t k = layer * p.ring_k_layer_stride + row * p.ring_k_row_stride +
                         (std::int64_t{j / (p.HV / p.H)} * p.L + t) * kD;
  const std::int64_t v = layer * p.ring_v_layer_stride + row * p.ring_v_row_stride + of_value * kD;
  const std::int64_t g = layer * p.ring_g_layer_stride + row * p.ring_g_row_stride + of_value * kD;
  Problem gate = p;  // of this layer
  if (p.A_log != nullptr) gate.A_log += layer * p.A_log_layer_stride;
  Token token;
  double squares = 1e-6;
  for (int d = 0; d < kD; ++d) {
    token.k[d] = load(p.ring_k, p.ring_kv_dtype, k + d);
    token.v[d] = load(p.ring_v, p.ring_kv_dtype, v + d);
    squares += token.k[d] * token.k[d];
    double x = load(p.ring_g, p.ring_g_dtype, g + d);
    if (p.dt_bias != nullptr) x += p.dt_bias[layer * p.dt_bias_layer_stride + j * kD + d];
    token.decay[d] = std::exp(p.ring_g_dtype == DType::kF32 ? x : log_decay_of(gate, x, j));
  }
  if (p.qk_l2norm)
    for (double& e : token.k) e /= std::sqrt(squares);
  token.beta =
      p.ring_beta[layer * p.ring_beta_layer_stride + row * p.ring_beta_row_stride + of_value];
  return token;
}

/// The state that begins at element `from` after the token, to element `to`.
void advance(const Problem& p, const Token& token, std::int64_t from, std::int64_t to) {
  for (int row = 0; row < kD; ++row) {
    double s[kD];
    double prediction = 0.0;
    for (int d = 0; d < kD; ++d) {
      s[d] = load(p.state, p.state_dtype, from + row * kD + d) * token.decay[d];
      prediction += s[d] * token.k[d];
    }
    const double u = (token.v[row] - prediction) * token.beta;
    for (int d = 0; d < kD; ++d)
      store(p.state, p.state_dtype, to + row * kD + d, s[d] + u * token.k[d]);
  }
}

void roll_window(const Problem& p, int layer, int n, int t, std::int64_t slot) {
  const std::int64_t row = p.scratch_indices.defined() ? p.scratch_indices[n] : n;
  for (int tap = 0; tap < kKdaConvWidth - 1; ++tap)
    for (int c = 0; c < p.C; ++c)
      p.conv_states[layer * p.conv_layer_stride + slot * p.conv_slot_stride +
                    tap * p.conv_tap_stride + c] =
          p.conv_scratch[layer * p.scratch_layer_stride + row * p.scratch_row_stride +
                         t * p.scratch_token_stride + tap * p.scratch_tap_stride + c];
}

}  // namespace

void kda_replay_commit(const KdaReplayCommitArgs& args) {
  const Problem p = check(args);
  for (int layer = 0; layer < p.num_layers; ++layer) {
    for (int n = 0; n < p.B; ++n) {
      const std::int64_t slot = p.state_indices[n];
      if (slot <= p.null_index) continue;
      const std::int64_t ring = p.ring_indices.defined() ? p.ring_indices[n] : slot;
      const std::int64_t track = p.track_indices.defined() ? p.track_indices[n] : -1;
      for (int t = 0; t < p.accept_lens[n]; ++t) {
        const bool tracks = track > p.null_index && t == p.track_steps[n];
        const bool last = t + 1 == p.accept_lens[n];
        for (int j = 0; j < p.HV; ++j) {
          const std::int64_t head = layer * p.state_layer_stride + std::int64_t{j} * kD * kD;
          const std::int64_t at = head + slot * p.state_slot_stride;
          const Token token = load_token(p, layer, ring, j, t);
          if (tracks) advance(p, token, at, head + track * p.state_slot_stride);
          advance(p, token, at, at);
        }
        if (tracks && p.conv_states != nullptr) roll_window(p, layer, n, t, track);
        if (last && p.conv_states != nullptr) roll_window(p, layer, n, t, slot);
      }
    }
  }
}

}  // namespace k3::oracle
