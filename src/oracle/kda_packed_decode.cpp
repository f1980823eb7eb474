// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_packed_decode.h"

#include <cmath>
#include <vector>

#include "oracle/element.h"
#include "oracle/kda_gate.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {
namespace {

using Problem = KdaPackedDecodeProblem;
constexpr int kD = kKdaHeadDim;

std::vector<double> widen(const bf16* x) {
  std::vector<double> y(kD);
  for (int d = 0; d < kD; ++d) y[d] = to_float(x[d]);
  return y;
}

std::vector<double> unit(std::vector<double> x, double scale) {
  double squares = 1e-6;
  for (double e : x) squares += e * e;
  for (double& e : x) e *= scale / std::sqrt(squares);
  return x;
}

/// Value head j of request n, whose state begins at element `S`.
void decode_head(const Problem& p, int n, int j, std::int64_t S, bf16* out) {
  const bf16* const qkv = p.mixed_qkv + n * p.mixed_qkv_stride;
  const int h = j / (p.HV / p.H);
  const std::vector<double> q = unit(widen(qkv + h * kD), p.scale);
  const std::vector<double> k = unit(widen(qkv + (p.H + h) * kD), 1.0);
  const std::vector<double> v = widen(qkv + (2 * p.H + j) * kD);
  const double beta = sigmoid(to_float(p.beta[n * p.beta_stride + j]));
  std::vector<double> decay = widen(p.g + n * p.g_stride + j * kD);
  for (int d = 0; d < kD; ++d) {
    const double bias = p.dt_bias != nullptr ? p.dt_bias[j * kD + d] : 0.0;
    decay[d] = std::exp(log_decay_of(p, decay[d] + bias, j));
  }
  for (int row = 0; row < kD; ++row) {
    const std::int64_t at = S + row * kD;
    std::vector<double> s(kD);
    double prediction = 0.0;
    for (int d = 0; d < kD; ++d) {
      s[d] = load(p.state, p.state_dtype, at + d) * decay[d];
      prediction += s[d] * k[d];
    }
    double o = 0.0;
    for (int d = 0; d < kD; ++d) {
      s[d] += (v[row] - prediction) * beta * k[d];
      o += s[d] * q[d];
      store(p.state, p.state_dtype, at + d, s[d]);
    }
    out[row] = round_bf16(o);
  }
}

}  // namespace

void kda_packed_decode(const KdaPackedDecodeArgs& args) {
  const Problem p = check(args);
  for (int n = 0; n < p.B; ++n) {
    const std::int64_t slot = p.state_indices[n];
    for (int j = 0; j < p.HV; ++j) {
      bf16* const out = p.out + n * p.out_stride + j * kD;
      if (slot <= p.null_index)
        for (int d = 0; d < kD; ++d) out[d] = {};
      else
        decode_head(p, n, j, slot * p.state_slot_stride + std::int64_t{j} * kD * kD, out);
    }
  }
}

}  // namespace k3::oracle
