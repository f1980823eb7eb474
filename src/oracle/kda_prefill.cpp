// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "contract/kda_prefill.h"
#include "oracle/kda_gate.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {
namespace {

using Problem = KdaPrefillProblem;
constexpr int kD = kKdaHeadDim;
using Vector = std::vector<double>;

double load(const void* data, DType dtype, std::int64_t i) {
  return dtype == DType::kF32 ? static_cast<const float*>(data)[i]
                              : to_float(static_cast<const bf16*>(data)[i]);
}

void store(void* data, DType dtype, std::int64_t i, double x) {
  if (dtype == DType::kF32)
    static_cast<float*>(data)[i] = static_cast<float>(x);
  else
    static_cast<bf16*>(data)[i] = round_bf16(x);
}

std::int64_t at(const TokenStrides& s, std::int64_t b, std::int64_t t, int h) {
  return b * s.batch + t * s.token + h * s.head;
}

/// Offset of S[k][v] in a stored state.
int state_index(const Problem& p, int k, int v) {
  return p.state_layout == StateLayout::kVK ? v * kD + k : k * kD + v;
}

void write_state(const Problem& p, void* data, DType dtype, std::int64_t offset, const Vector& S) {
  for (int k = 0; k < kD; ++k)
    for (int v = 0; v < kD; ++v) store(data, dtype, offset + state_index(p, k, v), S[k * kD + v]);
}

Vector load_qk(const Problem& p, const bf16* x) {
  Vector result(kD);
  double squares = 1e-6;
  for (int d = 0; d < kD; ++d) {
    result[d] = to_float(x[d]);
    squares += result[d] * result[d];
  }
  if (p.qk_l2norm)
    for (double& e : result) e /= std::sqrt(squares);
  return result;
}

double log_decay(const Problem& p, double raw, int hv, int d) {
  if (!p.gate_in_kernel) return raw;
  const double x = raw + (p.dt_bias != nullptr ? p.dt_bias[hv * kD + d] : 0.0);
  return log_decay_of(p, x, hv);
}

double learning_rate(const Problem& p, double raw) {
  if (!p.beta_sigmoid) return raw;
  return (p.allow_neg_eigval ? 2.0 : 1.0) * sigmoid(raw);
}

/// One token of the recurrence on S [K, V].
void step(const Problem& p, std::int64_t b, std::int64_t t, int hv, Vector& S) {
  const int h = hv / (p.HV / p.H);
  const Vector q = load_qk(p, p.q + at(p.q_strides, b, t, h));
  const Vector k = load_qk(p, p.k + at(p.k_strides, b, t, h));
  const double beta = learning_rate(p, load(p.beta, p.beta_dtype, at(p.beta_strides, b, t, hv)));
  const std::int64_t g_at = at(p.g_strides, b, t, hv);
  for (int d = 0; d < kD; ++d) {
    const double decay = std::exp(log_decay(p, load(p.g, p.g_dtype, g_at + d), hv, d));
    for (int v = 0; v < kD; ++v) S[d * kD + v] *= decay;
  }
  Vector n(kD);
  for (int v = 0; v < kD; ++v) n[v] = to_float(p.v[at(p.v_strides, b, t, hv) + v]);
  for (int d = 0; d < kD; ++d)
    for (int v = 0; v < kD; ++v) n[v] -= S[d * kD + v] * k[d];
  Vector o(kD);
  for (int d = 0; d < kD; ++d)
    for (int v = 0; v < kD; ++v) {
      S[d * kD + v] += k[d] * beta * n[v];
      o[v] += S[d * kD + v] * p.scale * q[d];
    }
  for (int v = 0; v < kD; ++v) p.out[at(p.out_strides, b, t, hv) + v] = round_bf16(o[v]);
}

void run_sequence(const Problem& p, int n, std::int64_t first_chunk_row, int hv) {
  const std::int64_t slot = p.state_indices != nullptr ? p.state_indices[n] : n;
  const std::int64_t head = std::int64_t{hv} * kD * kD;
  Vector S(kD * kD, 0.0);
  if (p.initial_state != nullptr && slot >= 0)
    for (int k = 0; k < kD; ++k)
      for (int v = 0; v < kD; ++v)
        S[k * kD + v] = load(p.initial_state, p.state_dtype,
                             slot * p.initial_slot_stride + head + state_index(p, k, v));
  const std::int64_t length = p.length(n);
  for (std::int64_t i = 0; i <= length; ++i) {
    const bool boundary = i % kKdaChunkTokens == 0;
    if (boundary && p.track_chunk_idx != nullptr && p.track_chunk_idx[n] >= 0 &&
        p.track_chunk_idx[n] == i / kKdaChunkTokens)
      write_state(p, p.tracked_states, DType::kF32, n * p.tracked_row_stride + head, S);
    if (i == length) break;
    if (boundary && p.chunk_states != nullptr)
      write_state(p, p.chunk_states, p.chunk_dtype,
                  (first_chunk_row + i / kKdaChunkTokens) * p.chunk_row_stride + head, S);
    step(p, p.batch_row(n), p.begin(n) + i, hv, S);
  }
  if (p.final_state != nullptr && slot >= 0)
    write_state(p, p.final_state, p.state_dtype, slot * p.final_slot_stride + head, S);
}

}  // namespace

void kda_prefill(const KdaPrefillArgs& args) {
  const Problem p = check(args);
  if (p.writes_nothing()) return;
  std::int64_t chunk_row = 0;
  for (int n = 0; n < p.N; ++n) {
    for (int hv = 0; hv < p.HV; ++hv) run_sequence(p, n, chunk_row, hv);
    chunk_row += (p.length(n) + kKdaChunkTokens - 1) / kKdaChunkTokens;
  }
}

}  // namespace k3::oracle
