// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_chunk_inverse.h"

#include <vector>

#include "oracle/element.h"
#include "oracle/oracle.h"

namespace k3::oracle {

/// Column by column: (I + L) x = e_c, from the first row down.
void kda_chunk_inverse(const KdaChunkInverseArgs& args) {
  constexpr int kC = kKdaChunkTokens;
  const KdaChunkInverseProblem p = check(args);
  for (int m = 0; m < p.M; ++m) {
    const std::int64_t L_at = p.offset(p.L_strides, m);
    const std::int64_t beta_at = p.offset(p.beta_strides, m);
    const std::int64_t out_at = p.offset(p.out_strides, m);
    std::vector<double> L(kC * kC);  // out may be L
    for (int i = 0; i < kC; ++i)
      for (int j = 0; j < i; ++j)
        L[i * kC + j] = load(p.L, p.L_dtype, L_at + i * p.L_strides.row + j);
    for (int c = 0; c < kC; ++c) {
      const double beta =
          p.beta == nullptr ? 1.0 : load(p.beta, p.beta_dtype, beta_at + c * p.beta_strides.row);
      std::vector<double> x(kC, 0.0);
      x[c] = 1.0;
      for (int i = c + 1; i < kC; ++i)
        for (int j = c; j < i; ++j) x[i] -= L[i * kC + j] * x[j];
      for (int i = 0; i < kC; ++i)
        store(p.out, p.out_dtype, out_at + i * p.out_strides.row + c, i < c ? 0.0 : x[i] * beta);
    }
  }
}

}  // namespace k3::oracle
