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
      attn_res_mix_entry,
      tiny_gemm_entry,
      per_token_group_quant_entry,
      moe_route_topk_entry,
      moe_topk_sum_entry,
      moe_finalize_entry,
      moe_route_quant_entry,
      moe_front_entry,
      moe_front_epilogue_entry,
      moe_pack_topk_entry,
      moe_align_entry,
      situ_mul_quant_entry,
      vision_patchify_entry,
      vision_rope_entry,
      image_resize_entry,
      add3_entry,
      top_p_renorm_entry,
  };
  // clang-format on
  return all;
}

}  // namespace k3
