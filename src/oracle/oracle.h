// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "k3/ops/add3.h"
#include "k3/ops/attn_res_mix.h"
#include "k3/ops/image_resize.h"
#include "k3/ops/kda_chunk_inverse.h"
#include "k3/ops/kda_fused_decode.h"
#include "k3/ops/kda_output_norm.h"
#include "k3/ops/kda_packed_decode.h"
#include "k3/ops/kda_prefill.h"
#include "k3/ops/kda_recompute_wu.h"
#include "k3/ops/kda_replay_commit.h"
#include "k3/ops/kda_verify.h"
#include "k3/ops/mla_block_table.h"
#include "k3/ops/mla_cache_write_concat_q.h"
#include "k3/ops/mla_output_gate.h"
#include "k3/ops/moe_align.h"
#include "k3/ops/moe_finalize.h"
#include "k3/ops/moe_front.h"
#include "k3/ops/moe_pack_topk.h"
#include "k3/ops/moe_route_quant.h"
#include "k3/ops/moe_route_topk.h"
#include "k3/ops/moe_topk_sum.h"
#include "k3/ops/per_token_group_quant.h"
#include "k3/ops/situ_and_mul.h"
#include "k3/ops/situ_mul_quant.h"
#include "k3/ops/tiny_gemm.h"
#include "k3/ops/top_p_renorm.h"
#include "k3/ops/vision_patchify.h"
#include "k3/ops/vision_rope.h"

/// Double-precision references, straight from the formulas of the public headers: loops only, host
/// tensors only, no code shared with any backend but the contract check. Linked to the CLI and the
/// tests, never to the library.
namespace k3::oracle {

void kda_prefill(const KdaPrefillArgs& args);
void kda_chunk_inverse(const KdaChunkInverseArgs& args);
void kda_recompute_wu(const KdaRecomputeWuArgs& args);
void kda_fused_decode(const KdaFusedDecodeArgs& args);
void kda_packed_decode(const KdaPackedDecodeArgs& args);
void kda_replay_commit(const KdaReplayCommitArgs& args);
void kda_output_norm(const KdaOutputNormArgs& args);
void kda_verify(const KdaVerifyArgs& args);
void situ_and_mul(const SituAndMulArgs& args);
void mla_cache_write_concat_q(const MlaCacheWriteConcatQArgs& args);
void mla_block_table(const MlaBlockTableArgs& args);
void mla_output_gate(const MlaOutputGateArgs& args);
void attn_res_mix(const AttnResMixArgs& args);
void tiny_gemm(const TinyGemmArgs& args);
void per_token_group_quant(const PerTokenGroupQuantArgs& args);
void moe_route_topk(const MoeRouteTopkArgs& args);
void moe_topk_sum(const MoeTopkSumArgs& args);
void moe_finalize(const MoeFinalizeArgs& args);
void moe_route_quant(const MoeRouteQuantArgs& args);
void moe_front(const MoeFrontArgs& args);
void moe_front_epilogue(const MoeFrontEpilogueArgs& args);
void moe_pack_topk(const MoePackTopkArgs& args);
void moe_align(const MoeAlignArgs& args);
void situ_mul_quant(const SituMulQuantArgs& args);
void vision_patchify(const VisionPatchifyArgs& args);
void vision_rope(const VisionRopeArgs& args);
void image_resize(const ImageResizeArgs& args);
void add3(const Add3Args& args);
void top_p_renorm(const TopPRenormArgs& args);

}  // namespace k3::oracle
