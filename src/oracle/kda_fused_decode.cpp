// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "contract/kda_fused_decode.h"
#include "oracle/kda_gate.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {
namespace {

using Problem = KdaFusedDecodeProblem;
constexpr int kD = kKdaHeadDim;

double as_bf16(double x) { return to_float(round_bf16(x)); }

/// Convolution and SiLU of one channel; shifts its window.
double conv_channel(const Problem& p, int n, std::int64_t slot, int channel) {
  bf16* const window = p.conv_states + slot * p.conv_slot_stride + channel;
  const bf16 newest = p.mixed_qkv[n * p.mixed_qkv_stride + channel];
  double sum = p.conv_bias != nullptr ? p.conv_bias[channel] : 0.0;
  for (int tap = 0; tap < 3; ++tap)
    sum += static_cast<double>(to_float(window[tap * p.conv_tap_stride])) *
           p.conv_weight[tap * p.conv_weight_stride + channel];
  sum += static_cast<double>(to_float(newest)) * p.conv_weight[3 * p.conv_weight_stride + channel];
  window[0] = window[p.conv_tap_stride];
  window[p.conv_tap_stride] = window[2 * p.conv_tap_stride];
  window[2 * p.conv_tap_stride] = newest;
  const double y = sum * sigmoid(sum);
  return p.round_conv == Rounding::kBF16 ? as_bf16(y) : y;
}

void normalise(std::vector<double>& x, double scale) {
  double squares = 1e-6;
  for (double e : x) squares += e * e;
  for (double& e : x) e *= scale / std::sqrt(squares);
}

double log_decay(const Problem& p, int n, int h, int d) {
  const double bias = p.dt_bias != nullptr ? p.dt_bias[h * kD + d] : 0.0;
  const double x = to_float(p.g[n * p.g_stride + h * kD + d]) + bias;
  return log_decay_of(p, x, h);
}

template <class StateT>
double load(StateT x) {
  if constexpr (sizeof(StateT) == 2)
    return to_float(x);
  else
    return x;
}

void store(float& to, double x) { to = static_cast<float>(x); }
void store(bf16& to, double x) { to = round_bf16(x); }

template <class StateT>
std::vector<double> recur(const Problem& p, int n, int h, StateT* S, const std::vector<double>& q,
                          const std::vector<double>& k, const std::vector<double>& v) {
  const double beta = sigmoid(to_float(p.beta[n * p.beta_stride + h]));
  std::vector<double> decay(kD);
  for (int d = 0; d < kD; ++d) decay[d] = std::exp(log_decay(p, n, h, d));
  std::vector<double> o(kD);
  for (int row = 0; row < kD; ++row) {
    std::vector<double> s(kD);
    double prediction = 0.0;
    for (int d = 0; d < kD; ++d) {
      s[d] = load(S[row * kD + d]) * decay[d];
      prediction += s[d] * k[d];
    }
    const double u = (v[row] - prediction) * beta;
    for (int d = 0; d < kD; ++d) {
      s[d] += u * k[d];
      o[row] += s[d] * q[d];
      store(S[row * kD + d], s[d]);
    }
  }
  return o;
}

void write_out(const Problem& p, int n, int h, std::vector<double> o) {
  if (p.round_o == Rounding::kBF16)
    for (double& e : o) e = as_bf16(e);
  double squares = 0.0;
  for (double e : o) squares += e * e;
  bf16* const out = p.out + n * p.out_stride + h * kD;
  for (int d = 0; d < kD; ++d) {
    double y = o[d];
    if (p.onorm_gate != nullptr)
      y = o[d] / std::sqrt(squares / kD + p.eps_o) * p.onorm_weight[d] *
          sigmoid(to_float(p.onorm_gate[n * p.onorm_gate_stride + h * kD + d]));
    out[d] = round_bf16(y);
  }
}

}  // namespace

void kda_fused_decode(const KdaFusedDecodeArgs& args) {
  const Problem p = check(args);
  for (int n = 0; n < p.B; ++n) {
    const std::int64_t slot = p.state_indices[n];
    for (int h = 0; h < p.H; ++h) {
      if (slot <= p.null_index) {
        for (int d = 0; d < kD; ++d) p.out[n * p.out_stride + h * kD + d] = {};
        continue;
      }
      std::vector<double> qkv[3];
      for (int part = 0; part < 3; ++part)
        for (int d = 0; d < kD; ++d)
          qkv[part].push_back(conv_channel(p, n, slot, (part * p.H + h) * kD + d));
      normalise(qkv[0], p.scale);
      normalise(qkv[1], 1.0);
      const std::int64_t offset = slot * p.state_slot_stride + std::int64_t{h} * kD * kD;
      const auto o =
          p.state_dtype == DType::kF32
              ? recur(p, n, h, static_cast<float*>(p.state) + offset, qkv[0], qkv[1], qkv[2])
              : recur(p, n, h, static_cast<bf16*>(p.state) + offset, qkv[0], qkv[1], qkv[2]);
      write_out(p, n, h, o);
    }
  }
}

}  // namespace k3::oracle
