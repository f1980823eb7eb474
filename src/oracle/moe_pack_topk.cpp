// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_pack_topk.h"
#include "oracle/oracle.h"

namespace k3::oracle {

void moe_pack_topk(const MoePackTopkArgs& args) {
  const MoePackTopkProblem p = check(args);
  for (std::int64_t row = 0; row < p.num_rows; ++row) {
    for (std::int64_t i = 0; i < p.columns; ++i) {
      const std::int64_t at = row * p.ids_stride + i;
      const std::int64_t id = p.wide_ids ? static_cast<const std::int64_t*>(p.ids)[at]
                                         : static_cast<const std::int32_t*>(p.ids)[at];
      p.packed[row * p.packed_stride + i] = pack_topk(id, p.weights[row * p.weights_stride + i]);
    }
  }
}

}  // namespace k3::oracle
