// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_topk_sum.h"
#include "oracle/oracle.h"
#include "oracle/round.h"

namespace k3::oracle {

void moe_topk_sum(const MoeTopkSumArgs& args) {
  const MoeTopkSumProblem p = check(args);
  for (std::int64_t t = 0; t < p.T; ++t) {
    for (std::int64_t h = 0; h < p.H; ++h) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < p.topk; ++j)
        sum += to_float(p.input[t * p.token_stride + j * p.slot_stride + h]);
      p.out[t * p.out_stride + h] = round_bf16(sum);
    }
  }
}

}  // namespace k3::oracle
