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
const Driver& moe_route_topk_driver();
const Driver& moe_route_quant_driver();
const Driver& moe_front_driver();
const Driver& moe_front_epilogue_driver();
const Driver& moe_pack_topk_driver();
const Driver& moe_align_driver();
const Driver& per_token_group_quant_driver();

std::vector<Case> kda_prefill_cases();
std::vector<Case> kda_chunk_inverse_cases();
std::vector<Case> kda_recompute_wu_cases();
std::vector<Case> kda_fused_decode_cases();
std::vector<Case> kda_packed_decode_cases();
std::vector<Case> kda_replay_commit_cases();
std::vector<Case> kda_verify_cases();
std::vector<Case> situ_and_mul_cases();
std::vector<Case> moe_route_topk_cases();
std::vector<Case> per_token_group_quant_cases();

}  // namespace k3::harness
