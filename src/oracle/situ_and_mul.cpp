// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "contract/situ_and_mul.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {

void situ_and_mul(const SituAndMulArgs& args) {
  const SituAndMulProblem p = check(args);
  for (std::int64_t row = 0; row < p.num_rows; ++row) {
    for (std::int64_t d = 0; d < p.D; ++d) {
      const double gate = to_float(p.input[row * p.input_stride + d]);
      const double up = to_float(p.input[row * p.input_stride + p.D + d]);
      const double soft_gate = p.beta * std::tanh(gate / p.beta) / (1.0 + std::exp(-gate));
      const double soft_up = p.has_linear_beta ? p.linear_beta * std::tanh(up / p.linear_beta) : up;
      p.out[row * p.out_stride + d] = round_bf16(soft_gate * soft_up);
    }
  }
}

}  // namespace k3::oracle
