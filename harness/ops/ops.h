// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/driver.h"

/// One driver per op; each stands in harness/ops/<op>.cpp, its cases there or in <op>_cases.cpp.
namespace k3::harness {

const Driver& kda_prefill_driver();
const Driver& kda_chunk_inverse_driver();
const Driver& kda_recompute_wu_driver();
const Driver& kda_fused_decode_driver();
const Driver& kda_packed_decode_driver();
const Driver& kda_replay_commit_driver();
const Driver& kda_output_norm_driver();
const Driver& kda_verify_driver();
const Driver& situ_and_mul_driver();
const Driver& mla_cache_write_concat_q_driver();
const Driver& mla_block_table_driver();
const Driver& mla_output_gate_driver();
const Driver& attn_res_mix_driver();
const Driver& tiny_gemm_driver();
const Driver& per_token_group_quant_driver();
const Driver& moe_route_topk_driver();
const Driver& moe_topk_sum_driver();
const Driver& moe_finalize_driver();
const Driver& moe_route_quant_driver();
const Driver& moe_front_driver();
const Driver& moe_front_epilogue_driver();
const Driver& moe_pack_topk_driver();
const Driver& moe_align_driver();
const Driver& situ_mul_quant_driver();
const Driver& vision_patchify_driver();
const Driver& vision_rope_driver();
const Driver& image_resize_driver();
const Driver& add3_driver();
const Driver& top_p_renorm_driver();

std::vector<Case> kda_prefill_cases();
std::vector<Case> kda_chunk_inverse_cases();
std::vector<Case> kda_recompute_wu_cases();
std::vector<Case> kda_fused_decode_cases();
std::vector<Case> kda_packed_decode_cases();
std::vector<Case> kda_replay_commit_cases();
std::vector<Case> kda_verify_cases();
std::vector<Case> situ_and_mul_cases();
std::vector<Case> mla_cache_write_concat_q_cases();
std::vector<Case> mla_block_table_cases();
std::vector<Case> mla_output_gate_cases();
std::vector<Case> attn_res_mix_cases();
std::vector<Case> tiny_gemm_cases();
std::vector<Case> per_token_group_quant_cases();
std::vector<Case> moe_route_topk_cases();
std::vector<Case> moe_topk_sum_cases();
std::vector<Case> moe_finalize_cases();
std::vector<Case> situ_mul_quant_cases();
std::vector<Case> vision_patchify_cases();
std::vector<Case> vision_rope_cases();
std::vector<Case> image_resize_cases();
std::vector<Case> add3_cases();
std::vector<Case> top_p_renorm_cases();

}  // namespace k3::harness
