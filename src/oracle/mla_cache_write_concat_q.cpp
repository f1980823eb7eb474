// SPDX-License-Identifier: Apache-2.0
#include "contract/mla_cache_write_concat_q.h"

#include "core/fp8.h"
#include "oracle/oracle.h"

namespace k3::oracle {
namespace {

void write(void* to, bool fp8, std::int64_t at, bf16 x) {
  if (fp8)
    static_cast<fp8_e4m3*>(to)[at] = to_e4m3(to_float(x));
  else
    static_cast<bf16*>(to)[at] = x;
}

}  // namespace

void mla_cache_write_concat_q(const MlaCacheWriteConcatQArgs& args) {
  const MlaCacheWriteConcatQProblem p = check(args);
  for (std::int64_t i = 0; i < p.B; ++i) {
    const std::int64_t slot = p.slots[i];
    if (slot > p.null_index && slot % p.dcp_world_size == p.dcp_rank) {
      const std::int64_t row = slot / p.dcp_world_size * p.kv_stride;
      for (int d = 0; d < p.nope; ++d)
        write(p.kv_buffer, p.fp8, row + d, p.k_nope[i * p.k_nope_stride + d]);
      for (int d = 0; d < p.rope; ++d)
        write(p.kv_buffer, p.fp8, row + p.nope + d, p.k_rope[i * p.k_rope_stride + d]);
    }
    for (int h = 0; h < p.H; ++h) {
      const bf16* const nope = p.q_nope + i * p.q_nope_token_stride + h * p.q_nope_head_stride;
      const bf16* const rope = p.q_rope + i * p.q_rope_token_stride + h * p.q_rope_head_stride;
      const std::int64_t out = i * p.q_out_token_stride + h * p.q_out_head_stride;
      for (int d = 0; d < p.nope; ++d) write(p.q_out, p.fp8, out + d, nope[d]);
      for (int d = 0; d < p.rope; ++d) write(p.q_out, p.fp8, out + p.nope + d, rope[d]);
    }
  }
}

}  // namespace k3::oracle
