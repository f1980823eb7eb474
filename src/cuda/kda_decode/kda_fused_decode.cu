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

/// Few heads: split over a cluster. Else one CTA a head, since what the CTAs of a cluster do twice
/// costs more than their shorter queues give. In the middle, where all heads fit on the chip at
/// once, narrow CTAs with long queues.
void kda_fused_decode_vec4(const KdaFusedDecodeProblem& p, const Target& target) {
  constexpr DecodeShape kSplit = {.warps = 4, .batch = 4, .streaming = true};
  constexpr DecodeShape kNarrow = {.warps = 4, .batch = 4, .batches = 8, .ahead = 4};
  constexpr DecodeShape kWide = {.warps = 8, .batch = 8, .batches = 2};
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  if (heads <= 48)
    run_decode<kSplit, true>(p, p.H, DecodeEarly::kAll, target);
  else if (heads > 192 && heads <= 1536)
    run_decode<kNarrow, true>(p, p.H, DecodeEarly::kVectors, target);
  else
    run_decode<kWide, true>(p, p.H, DecodeEarly::kAll, target);
}

void kda_fused_decode_scalar(const KdaFusedDecodeProblem& p, const Target& target) {
  constexpr DecodeShape kShape = {.warps = 4, .batch = 4, .batches = 4};
  run_decode<kShape, false>(p, p.H, DecodeEarly::kNothing, target);
}

}  // namespace k3::cuda
