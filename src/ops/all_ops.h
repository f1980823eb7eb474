// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "k3/capability.h"

namespace k3 {

/// An op as the table of capabilities sees it.
struct OpEntry {
  void (*append_rows)(std::vector<Capability>& rows);
};

/// Every op, in the order of the documentation. Each entry stands in src/ops/<op>.cpp.
std::span<const OpEntry> all_ops();

extern const OpEntry kda_prefill_entry;
extern const OpEntry kda_chunk_inverse_entry;
extern const OpEntry kda_recompute_wu_entry;
extern const OpEntry kda_fused_decode_entry;
extern const OpEntry kda_packed_decode_entry;
extern const OpEntry kda_replay_commit_entry;
extern const OpEntry kda_output_norm_entry;
extern const OpEntry kda_verify_entry;
extern const OpEntry situ_and_mul_entry;
extern const OpEntry mla_cache_write_concat_q_entry;
extern const OpEntry mla_block_table_entry;
extern const OpEntry mla_output_gate_entry;
extern const OpEntry attn_res_mix_entry;
extern const OpEntry tiny_gemm_entry;
extern const OpEntry per_token_group_quant_entry;
extern const OpEntry moe_route_topk_entry;
extern const OpEntry moe_topk_sum_entry;
extern const OpEntry moe_finalize_entry;
extern const OpEntry moe_route_quant_entry;
extern const OpEntry moe_front_entry;
extern const OpEntry moe_front_epilogue_entry;
extern const OpEntry moe_pack_topk_entry;
extern const OpEntry moe_align_entry;
extern const OpEntry situ_mul_quant_entry;
extern const OpEntry vision_patchify_entry;
extern const OpEntry vision_rope_entry;
extern const OpEntry image_resize_entry;
extern const OpEntry add3_entry;
extern const OpEntry top_p_renorm_entry;

}  // namespace k3
