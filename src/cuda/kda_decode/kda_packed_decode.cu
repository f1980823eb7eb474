// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_decode/kda_decode.h"
#include "cuda/kda_decode/launch.cuh"

namespace k3::cuda {

const char* kda_packed_decode_vec4_refusal(const KdaPackedDecodeProblem& p, const Target&) {
  return decode_alignment_refusal(p);
}

/// Without convolution and norm a CTA does little that its neighbours do too, so that small ones
/// serve all but the largest sizes.
void kda_packed_decode_vec4(const KdaPackedDecodeProblem& p, const Target& target) {
  constexpr DecodeShape kFew = {.warps = 4, .batch = 4, .own_vectors = true};
  constexpr DecodeShape kMany = {.warps = 4, .batch = 4, .streaming = true};
  constexpr DecodeShape kHalves = {.warps = 4, .batch = 4, .batches = 4, .ahead = 4};
  const std::int64_t heads = std::int64_t{p.B} * p.HV;
  if (heads <= 192)
    run_decode<kFew, true>(p, p.HV, DecodeEarly::kAll, target);
  else if (heads <= 1024)
    run_decode<kMany, true>(p, p.HV, DecodeEarly::kNothing, target);
  else
    run_decode<kHalves, true>(p, p.HV, DecodeEarly::kAll, target);
}

void kda_packed_decode_scalar(const KdaPackedDecodeProblem& p, const Target& target) {
  constexpr DecodeShape kShape = {.warps = 4, .batch = 4, .batches = 4};
  run_decode<kShape, false>(p, p.HV, DecodeEarly::kNothing, target);
}

}  // namespace k3::cuda
