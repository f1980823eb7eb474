// SPDX-License-Identifier: Apache-2.0
#include "cuda/kda_decode/kda_decode.h"
#include "cuda/kda_decode/launch.cuh"

namespace k3::cuda {

const char* kda_packed_decode_vec4_refusal(const KdaPackedDecodeProblem& p, const Target&) {
  return decode_alignment_refusal(p);
}

/// Without convolution and norm a CTA does little that its neighbours do too, so that small ones
/// serve every size.
void kda_packed_decode_vec4(const KdaPackedDecodeProblem& p, const Target& target) {
  const std::int64_t heads = std::int64_t{p.B} * p.HV;
  if (heads <= 1024)
    run_decode<DecodeShape<4, 1, 1, true>, true>(p, p.HV, heads <= 48, target);
  else
    run_decode<DecodeShape<4, 2, 2, false>, true>(p, p.HV, false, target);
}

void kda_packed_decode_scalar(const KdaPackedDecodeProblem& p, const Target& target) {
  run_decode<DecodeShape<4, 4, 1, false>, false>(p, p.HV, false, target);
}

}  // namespace k3::cuda
