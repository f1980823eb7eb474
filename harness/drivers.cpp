// SPDX-License-Identifier: Apache-2.0
#include "harness/driver.h"
#include "harness/ops/ops.h"

namespace k3::harness {

std::span<const Driver* const> drivers() {
  // clang-format off: one line an op
  static const Driver* const all[] = {
      &kda_prefill_driver(),
      &kda_chunk_inverse_driver(),
      &kda_recompute_wu_driver(),
      &kda_fused_decode_driver(),
      &kda_packed_decode_driver(),
      &kda_verify_driver(),
      &kda_replay_commit_driver(),
      &kda_output_norm_driver(),
      &situ_and_mul_driver(),
      &mla_cache_write_concat_q_driver(),
      &mla_block_table_driver(),
      &mla_output_gate_driver(),
      &attn_res_mix_driver(),
      &tiny_gemm_driver(),
      &per_token_group_quant_driver(),
      &moe_route_topk_driver(),
      &moe_topk_sum_driver(),
      &moe_finalize_driver(),
      &moe_route_quant_driver(),
      &moe_front_driver(),
      &moe_front_epilogue_driver(),
      &moe_pack_topk_driver(),
      &moe_align_driver(),
      &situ_mul_quant_driver(),
      &vision_patchify_driver(),
      &vision_rope_driver(),
      &image_resize_driver(),
      &add3_driver(),
      &top_p_renorm_driver(),
  };
  // clang-format on
  return all;
}

const Driver* find_driver(std::string_view name) {
  for (const Driver* driver : drivers())
    if (name == driver->name) return driver;
  return nullptr;
}

}  // namespace k3::harness
