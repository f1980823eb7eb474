// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_verify.h"

#include <cmath>
#include <vector>

#include "oracle/kda_gate.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {
namespace {

using Problem = KdaVerifyProblem;
using Vector = std::vector<double>;
constexpr int kD = kKdaHeadDim;

double as_bf16(double x) { return to_float(round_bf16(x)); }

/// One head of one request: where it reads, where its side outputs go, and its state on the way.
struct Chain {
  int n;
  int h;
  std::int64_t slot;
  std::int64_t begin;   ///< first token
  std::int64_t length;  ///< tokens
  Vector S;             ///< [128 (V), 128 (K)]
};

/// The raw input of a channel at position `at` of the chain; the window of the slot stands at
/// positions -3 .. -1.
bf16 input_of(const Problem& p, const Chain& c, std::int64_t at, int channel) {
  if (at >= 0) return p.mixed_qkv[(c.begin + at) * p.mixed_qkv_stride + channel];
  return p.conv_states[c.slot * p.conv_slot_stride + (at + 3) * p.conv_tap_stride + channel];
}

/// Convolution and SiLU of 128 channels at token t, not rounded; writes the window after it.
Vector convolve(const Problem& p, const Chain& c, int t, int first_channel) {
  Vector y(kD);
  for (int d = 0; d < kD; ++d) {
    const int channel = first_channel + d;
    double sum = p.conv_bias != nullptr ? p.conv_bias[channel] : 0.0;
    for (int tap = 0; tap < 4; ++tap)
      sum += static_cast<double>(to_float(input_of(p, c, t - 3 + tap, channel))) *
             p.conv_weight[tap * p.conv_weight_stride + channel];
    y[d] = sum * sigmoid(sum);
    if (p.conv_scratch == nullptr) continue;
    const std::int64_t row = p.scratch_indices.defined() ? p.scratch_indices[c.n] : c.n;
    for (int tap = 0; tap < 3; ++tap)
      p.conv_scratch[row * p.conv_scratch_row_stride + t * p.conv_scratch_token_stride +
                     tap * p.conv_scratch_tap_stride + channel] =
          input_of(p, c, t - 2 + tap, channel);
  }
  return y;
}

Vector rounded(Vector x, Rounding rounding) {
  if (rounding == Rounding::kBF16)
    for (double& e : x) e = as_bf16(e);
  return x;
}

void normalise(Vector& x, double scale) {
  double squares = 1e-6;
  for (double e : x) squares += e * e;
  for (double& e : x) e *= scale / std::sqrt(squares);
}

void write_rings(const Problem& p, const Chain& c, int t, const Vector& k, const Vector& v,
                 const Vector& log_decay, double beta) {
  if (!p.has_rings) return;
  const std::int64_t row = p.ring_indices.defined() ? p.ring_indices[c.n] : c.slot;
  const std::int64_t at = (std::int64_t{c.h} * p.ring_len + t) * kD;
  for (int d = 0; d < kD; ++d) {
    p.ring_k[row * p.ring_k_row_stride + at + d] = round_bf16(k[d]);
    p.ring_v[row * p.ring_v_row_stride + at + d] = round_bf16(v[d]);
    const std::int64_t g = row * p.ring_g_row_stride + at + d;
    if (p.ring_g_dtype == DType::kBF16)
      static_cast<bf16*>(p.ring_g)[g] = p.g[(c.begin + t) * p.g_stride + c.h * kD + d];
    else
      static_cast<float*>(p.ring_g)[g] = static_cast<float>(log_decay[d]);
  }
  p.ring_beta[row * p.ring_beta_row_stride + c.h * p.ring_beta_head_stride +
              t * p.ring_beta_token_stride] = static_cast<float>(beta);
}

void write_snapshot(const Problem& p, const Chain& c, int t) {
  if (p.snapshots == nullptr) return;
  const std::int64_t row = p.scratch_indices.defined() ? p.scratch_indices[c.n] : c.n;
  const std::int64_t at =
      row * p.snapshot_row_stride + t * p.snapshot_token_stride + std::int64_t{c.h} * kD * kD;
  for (int i = 0; i < kD * kD; ++i) {
    if (p.state_dtype == DType::kBF16)
      static_cast<bf16*>(p.snapshots)[at + i] = round_bf16(c.S[i]);
    else
      static_cast<float*>(p.snapshots)[at + i] = static_cast<float>(c.S[i]);
  }
}

void write_out(const Problem& p, const Chain& c, int t, const Vector& o) {
  const std::int64_t token = c.begin + t;
  double squares = 0.0;
  for (double e : o) squares += e * e;
  for (int d = 0; d < kD; ++d) {
    double y = o[d];
    if (p.onorm_gate != nullptr)
      y = o[d] / std::sqrt(squares / kD + p.eps_o) * p.onorm_weight[d] *
          sigmoid(to_float(p.onorm_gate[token * p.onorm_gate_stride + c.h * kD + d]));
    p.out[token * p.out_stride + c.h * kD + d] = round_bf16(y);
  }
}

/// One token: S <- S exp(gate) + u k^T, o = S q. A bf16 state is rounded after that.
void step(const Problem& p, Chain& c, int t) {
  const std::int64_t token = c.begin + t;
  Vector q = rounded(convolve(p, c, t, c.h * kD), p.round_conv);
  Vector k = rounded(convolve(p, c, t, (p.H + c.h) * kD), p.round_conv);
  const Vector v = rounded(convolve(p, c, t, (2 * p.H + c.h) * kD), p.round_conv);
  const double beta = sigmoid(to_float(p.beta[token * p.beta_stride + c.h]));
  Vector log_decay(kD);
  for (int d = 0; d < kD; ++d) {
    const double bias = p.dt_bias != nullptr ? p.dt_bias[c.h * kD + d] : 0.0;
    log_decay[d] = log_decay_of(p, to_float(p.g[token * p.g_stride + c.h * kD + d]) + bias, c.h);
  }
  write_rings(p, c, t, k, v, log_decay, beta);
  normalise(q, p.scale);
  normalise(k, 1.0);
  Vector o(kD);
  for (int row = 0; row < kD; ++row) {
    double* const s = c.S.data() + row * kD;
    double prediction = 0.0;
    for (int d = 0; d < kD; ++d) {
      s[d] *= std::exp(log_decay[d]);
      prediction += s[d] * k[d];
    }
    const double u = (v[row] - prediction) * beta;
    for (int d = 0; d < kD; ++d) {
      s[d] += u * k[d];
      o[row] += s[d] * q[d];
      if (p.state_dtype == DType::kBF16) s[d] = as_bf16(s[d]);
    }
  }
  write_snapshot(p, c, t);
  write_out(p, c, t, rounded(o, p.round_o));
}

Vector committed_state(const Problem& p, std::int64_t slot, int h) {
  Vector S(kD * kD);
  const std::int64_t at = slot * p.state_slot_stride + std::int64_t{h} * kD * kD;
  for (int i = 0; i < kD * kD; ++i)
    S[i] = p.state_dtype == DType::kBF16 ? to_float(static_cast<const bf16*>(p.state)[at + i])
                                         : static_cast<const float*>(p.state)[at + i];
  return S;
}

}  // namespace

void kda_verify(const KdaVerifyArgs& args) {
  const Problem p = check(args);
  for (int n = 0; n < p.N; ++n) {
    const std::int64_t begin = p.query_start_loc[n];
    const std::int64_t length = p.query_start_loc[n + 1] - begin;
    const std::int64_t slot = p.state_indices[n];
    for (int h = 0; h < p.H; ++h) {
      if (slot <= p.null_index) {
        for (std::int64_t t = 0; t < length; ++t)
          for (int d = 0; d < kD; ++d) p.out[(begin + t) * p.out_stride + h * kD + d] = {};
        continue;
      }
      Chain chain = {n, h, slot, begin, length, committed_state(p, slot, h)};
      for (int t = 0; t < length; ++t) step(p, chain, t);
    }
  }
}

}  // namespace k3::oracle
