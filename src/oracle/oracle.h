// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "k3/ops/kda_chunk_inverse.h"
#include "k3/ops/kda_fused_decode.h"
#include "k3/ops/kda_output_norm.h"
#include "k3/ops/kda_packed_decode.h"
#include "k3/ops/kda_prefill.h"
#include "k3/ops/kda_recompute_wu.h"
#include "k3/ops/kda_replay_commit.h"
#include "k3/ops/kda_verify.h"
#include "k3/ops/moe_align.h"
#include "k3/ops/moe_front.h"
#include "k3/ops/moe_pack_topk.h"
#include "k3/ops/moe_route_quant.h"
#include "k3/ops/moe_route_topk.h"
#include "k3/ops/per_token_group_quant.h"
#include "k3/ops/situ_and_mul.h"

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
void moe_route_topk(const MoeRouteTopkArgs& args);
void moe_route_quant(const MoeRouteQuantArgs& args);
void moe_front(const MoeFrontArgs& args);
void moe_front_epilogue(const MoeFrontEpilogueArgs& args);
void moe_pack_topk(const MoePackTopkArgs& args);
void moe_align(const MoeAlignArgs& args);
void per_token_group_quant(const PerTokenGroupQuantArgs& args);

}  // namespace k3::oracle
