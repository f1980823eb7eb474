// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_recompute_wu.h"

#include <cmath>

#include "oracle/element.h"
#include "oracle/oracle.h"

namespace k3::oracle {
namespace {

std::int64_t at(const TokenStrides& s, std::int64_t b, std::int64_t t, int h) {
  return b * s.batch + t * s.token + h * s.head;
}

/// w and u of token t, the i-th of its chunk.
void token(const KdaRecomputeWuProblem& p, std::int64_t b, std::int64_t t, int i, int hv) {
  const int h = hv / (p.HV / p.H);
  for (int d = 0; d < kKdaHeadDim; ++d) {
    double w = 0.0;
    double u = 0.0;
    for (int j = 0; j <= i; ++j) {
      const std::int64_t source = t - i + j;
      double factor = load(p.A, p.A_dtype, at(p.A_strides, b, t, hv) + j);
      if (p.beta != nullptr)
        factor *= load(p.beta, p.beta_dtype, at(p.beta_strides, b, source, hv));
      const double decay = std::exp(double{p.g[at(p.g_strides, b, source, hv) + d]});
      w += factor * to_float(p.k[at(p.k_strides, b, source, h) + d]) * decay;
      u += factor * to_float(p.v[at(p.v_strides, b, source, hv) + d]);
    }
    p.w[at(p.w_strides, b, t, hv) + d] = round_bf16(w);
    p.u[at(p.u_strides, b, t, hv) + d] = round_bf16(u);
  }
}

}  // namespace

void kda_recompute_wu(const KdaRecomputeWuArgs& args) {
  const KdaRecomputeWuProblem p = check(args);
  const Sequences& s = p.sequences;
  for (int n = 0; n < s.N; ++n)
    for (std::int64_t i = 0; i < s.length(n); ++i)
      for (int hv = 0; hv < p.HV; ++hv)
        token(p, s.batch_row(n), s.begin(n) + i, static_cast<int>(i % kKdaChunkTokens), hv);
}

}  // namespace k3::oracle
