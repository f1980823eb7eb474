// SPDX-License-Identifier: Apache-2.0
#include "contract/mla_block_table.h"

#include "oracle/oracle.h"

namespace k3::oracle {

void mla_block_table(const MlaBlockTableArgs& args) {
  const MlaBlockTableProblem p = check(args);
  for (int b = 0; b < p.B; ++b) {
    const std::int64_t start = p.start.defined() ? p.start[b] : 0;
    for (std::int64_t j = 0; j * p.page_size < p.seq_lens[b]; ++j) {
      const std::int64_t token =
          p.req_to_token[p.req_pool[b] * p.row_stride + start + j * p.page_size];
      const std::int64_t page = p.has_v2p ? p.v2p[token / p.page_size] : token / p.page_size;
      p.block_table[b * p.block_table_stride + j] = static_cast<std::int32_t>(page * p.page_mult);
    }
  }
}

}  // namespace k3::oracle
