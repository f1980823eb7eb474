// SPDX-License-Identifier: Apache-2.0
#include "ops/all_ops.h"

namespace k3 {

std::span<const OpEntry> all_ops() {
  // clang-format off: one line an op
  static const OpEntry all[] = {
      kda_prefill_entry,
      kda_chunk_inverse_entry,
      kda_recompute_wu_entry,
      kda_fused_decode_entry,
      kda_packed_decode_entry,
      kda_verify_entry,
      kda_replay_commit_entry,
      kda_output_norm_entry,
      situ_and_mul_entry,
      mla_cache_write_concat_q_entry,
      mla_block_table_entry,
      mla_output_gate_entry,
  };
  // clang-format on
  return all;
}

}  // namespace k3
