// SPDX-License-Identifier: Apache-2.0
#include "contract/vision_rope.h"
#include "oracle/element.h"
#include "oracle/oracle.h"

namespace k3::oracle {
namespace {

void rotate(const VisionRopeProblem& p, const RopeHeads<const void>& in,
            const RopeHeads<void>& out) {
  for (std::int64_t t = 0; t < p.T; ++t)
    for (int h = 0; h < p.H; ++h)
      for (int i = 0; i < p.D / 2; ++i) {
        const double c = p.freqs[t * p.freqs_stride + 2 * i];
        const double s = p.freqs[t * p.freqs_stride + 2 * i + 1];
        const std::int64_t from = t * in.stride_t + h * in.stride_h + 2 * i;
        const double even = load(in.data, p.dtype, from);
        const double odd = load(in.data, p.dtype, from + 1);
        const std::int64_t to = t * out.stride_t + h * out.stride_h + 2 * i;
        store(out.data, p.dtype, to, even * c - odd * s);
        store(out.data, p.dtype, to + 1, even * s + odd * c);
      }
}

}  // namespace

void vision_rope(const VisionRopeArgs& args) {
  const VisionRopeProblem p = check(args);
  rotate(p, p.q, p.q_out);
  rotate(p, p.k, p.k_out);
}

}  // namespace k3::oracle
