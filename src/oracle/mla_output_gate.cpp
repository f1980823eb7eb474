// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "contract/mla_output_gate.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {

void mla_output_gate(const MlaOutputGateArgs& args) {
  const MlaOutputGateProblem p = check(args);
  for (std::int64_t row = 0; row < p.num_rows; ++row) {
    for (std::int64_t d = 0; d < p.D; ++d) {
      const double gate = to_float(p.gate[row * p.gate_stride + d]);
      const bf16 sigmoid = round_bf16(1.0 / (1.0 + std::exp(-gate)));
      const float product = to_float(p.x[row * p.x_stride + d]) * to_float(sigmoid);
      p.out[row * p.out_stride + d] = std::isnan(product) ? bf16{0x7FFF} : to_bf16(product);
    }
  }
}

}  // namespace k3::oracle
