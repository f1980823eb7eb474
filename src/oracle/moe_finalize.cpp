// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_finalize.h"
#include "oracle/element.h"
#include "oracle/oracle.h"

namespace k3::oracle {

void moe_finalize(const MoeFinalizeArgs& args) {
  const MoeFinalizeProblem p = check(args);
  for (std::int64_t t = 0; t < p.T; ++t) {
    for (std::int64_t h = 0; h < p.H; ++h) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < p.topk; ++j) {
        const std::int64_t row = p.idx[t * p.topk + j];
        if (row < 0) continue;
        sum += load(p.topk_weights, p.weights_dtype, t * p.weights_stride + j) *
               to_float(p.experts_out[row * p.experts_out_stride + h]);
      }
      p.out[t * p.out_stride + h] = round_bf16(sum);
    }
  }
}

}  // namespace k3::oracle
