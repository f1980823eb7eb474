// SPDX-License-Identifier: Apache-2.0
#include "contract/kda_output_norm.h"

#include <cmath>

#include "contract/kda.h"
#include "oracle/kda_gate.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {

void kda_output_norm(const KdaOutputNormArgs& args) {
  constexpr int kD = kKdaHeadDim;
  const KdaOutputNormProblem p = check(args);
  for (std::int64_t n = 0; n < p.T; ++n) {
    for (int h = 0; h < p.H; ++h) {
      const bf16* const raw = p.raw + n * p.raw_stride + h * kD;
      const bf16* const gate = p.gate + n * p.gate_stride + h * kD;
      bf16* const out = p.out + n * p.out_stride + h * kD;
      double squares = 0.0;
      for (int d = 0; d < kD; ++d) squares += std::pow(to_float(raw[d]), 2.0);
      for (int d = 0; d < kD; ++d) {
        const double unit = to_float(raw[d]) / std::sqrt(squares / kD + p.eps);
        out[d] = round_bf16(unit * p.weight[d] * sigmoid(to_float(gate[d])));
      }
    }
  }
}

}  // namespace k3::oracle
