// SPDX-License-Identifier: Apache-2.0
#include "contract/attn_res_mix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {
namespace {

/// c . row * rsqrt(mean row^2 + eps)
double score(const AttnResMixProblem& p, const bf16* row) {
  double squares = 0.0;
  double dot = 0.0;
  for (int h = 0; h < p.H; ++h) {
    const double c = to_float(p.score_weight[h]) *
                     (p.score_proj != nullptr ? double{to_float(p.score_proj[h])} : 1.0);
    squares += std::pow(to_float(row[h]), 2.0);
    dot += to_float(row[h]) * c;
  }
  return dot / std::sqrt(squares / p.H + p.eps);
}

}  // namespace

void attn_res_mix(const AttnResMixArgs& args) {
  const AttnResMixProblem p = check(args);
  const int rows = p.num_bank_rows + 1;
  for (std::int64_t t = 0; t < p.T; ++t) {
    const auto row = [&](int j) {
      return j < p.num_bank_rows ? p.bank + t * p.bank_token_stride + j * p.bank_row_stride
                                 : p.prefix + t * p.prefix_stride;
    };
    std::vector<double> weight(rows);
    double largest = -std::numeric_limits<double>::infinity();
    for (int j = 0; j < rows; ++j) {
      weight[j] = score(p, row(j));
      largest = std::max(largest, weight[j]);
    }
    double total = 0.0;
    for (double& w : weight) {
      w = std::exp(w - largest);
      total += w;
    }

    std::vector<double> mixed(p.H, 0.0);
    double squares = 0.0;
    for (int h = 0; h < p.H; ++h) {
      for (int j = 0; j < rows; ++j) mixed[h] += weight[j] / total * to_float(row(j)[h]);
      squares += mixed[h] * mixed[h];
    }
    const double inverse_rms = 1.0 / std::sqrt(squares / p.H + p.eps);
    for (int h = 0; h < p.H; ++h)
      p.out[t * p.out_stride + h] =
          round_bf16(mixed[h] * inverse_rms * to_float(p.out_norm_weight[h]));
    if (p.write_prefix)
      std::copy_n(row(p.num_bank_rows), p.H,
                  p.bank + t * p.bank_token_stride + p.num_bank_rows * p.bank_row_stride);
  }
}

}  // namespace k3::oracle
