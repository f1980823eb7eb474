// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_decode/kda_decode.h"
#include "cuda/kda_decode/launch.cuh"

namespace k3::cuda {

const char* kda_fused_decode_vec4_refusal(const KdaFusedDecodeProblem& p, const Target&) {
  if (const char* reason = decode_alignment_refusal(p)) return reason;
  if (!quads_aligned(p.conv_states, DType::kBF16, p.conv_slot_stride, p.conv_tap_stride))
    return "conv_states or its slot or tap stride is not aligned to 8 bytes";
  if (!quads_aligned(p.conv_weight, DType::kF32, p.conv_weight_stride))
    return "conv_weight or its tap stride is not aligned to 16 bytes";
  if (!is_aligned(p.conv_bias, 16)) return "conv_bias is not aligned to 16 bytes";
  if (!quads_aligned(p.onorm_gate, DType::kBF16, p.onorm_gate_stride))
    return "onorm_gate or its row stride is not aligned to 8 bytes";
  if (!is_aligned(p.onorm_weight, 16)) return "onorm_weight is not aligned to 16 bytes";
  return nullptr;
}

/// Few heads: split over a cluster, everything asked for ahead of time. Many: one CTA a head, since
/// what the CTAs of a cluster do twice costs more than their shorter queues give.
void kda_fused_decode_vec4(const KdaFusedDecodeProblem& p, const Target& target) {
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  if (heads <= 48)
    run_decode<DecodeShape<4, 1, 1, true>, true>(p, p.H, true, target);
  else if (heads <= 192)
    run_decode<DecodeShape<8, 4, 2, true>, true>(p, p.H, true, target);
  else if (heads <= 576)
    run_decode<DecodeShape<4, 4, 1, false>, true>(p, p.H, false, target);
  else
    run_decode<DecodeShape<4, 8, 4, false>, true>(p, p.H, false, target);
}

void kda_fused_decode_scalar(const KdaFusedDecodeProblem& p, const Target& target) {
  run_decode<DecodeShape<4, 4, 1, false>, false>(p, p.H, false, target);
}

}  // namespace k3::cuda
