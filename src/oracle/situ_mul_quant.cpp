// SPDX-License-Identifier: Apache-2.0
#include "contract/situ_mul_quant.h"

#include <array>
#include <cmath>

#include "oracle/group_quant.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {
namespace {

double situ(const SituMulQuantProblem& p, double gate, double up) {
  const double soft_gate = p.beta * std::tanh(gate / p.beta) / (1.0 + std::exp(-gate));
  const double value = soft_gate * p.linear_beta * std::tanh(up / p.linear_beta);
  return p.round_to_bf16 ? to_float(round_bf16(value)) : value;
}

}  // namespace

void situ_mul_quant(const SituMulQuantArgs& args) {
  const SituMulQuantProblem p = check(args);
  std::array<double, kSituGroup> values;
  for (std::int64_t e = 0; e < p.E; ++e) {
    ScaleRows scales = p.scales;
    scales.data = static_cast<float*>(scales.data) + e * p.scale_expert_stride;
    for (std::int64_t t = 0; t < p.live_rows(e); ++t) {
      const bf16* const row = p.input + e * p.input_expert_stride + t * p.input_row_stride;
      std::uint8_t* const codes = p.output_q + e * p.q_expert_stride + t * p.q_row_stride;
      for (std::int64_t n = 0; n < p.N; n += kSituGroup) {
        for (int i = 0; i < kSituGroup; ++i) {
          const std::int64_t c = n + i;
          const std::int64_t gate = p.swizzle ? c / 8 * 16 + c % 8 : c;
          const std::int64_t up = p.swizzle ? gate + 8 : p.N + c;
          values[i] = situ(p, to_float(row[gate]), to_float(row[up]));
        }
        const QuantisedGroup group(p.format, values);
        for (int i = 0; i < kSituGroup; ++i) codes[n + i] = group.code(p.format, values[i]);
        store_scale(scales, t, n / kSituGroup, group);
      }
    }
  }
}

}  // namespace k3::oracle
