// SPDX-License-Identifier: Apache-2.0
#include "contract/moe_front.h"

#include <vector>

#include "oracle/moe_route.h"
#include "oracle/oracle.h"

namespace k3::oracle {
namespace {

void take_apart(const MoeFrontEpilogueProblem& p) {
  route(p.routing);
  for (std::int64_t t = 0; t < p.routing.num_tokens; ++t)
    for (std::int64_t l = 0; l < p.L; ++l)
      p.routed[t * p.routed_stride + l] = to_bf16(p.latent[t * p.latent_stride + l]);
}

}  // namespace

void moe_front_epilogue(const MoeFrontEpilogueArgs& args) { take_apart(check(args)); }

void moe_front(const MoeFrontArgs& args) {
  const MoeFrontProblem p = check(args);
  std::vector<float> merged(static_cast<std::size_t>(p.T * p.N));
  for (std::int64_t t = 0; t < p.T; ++t) {
    for (std::int64_t n = 0; n < p.N; ++n) {
      double sum = 0.0;
      for (std::int64_t h = 0; h < p.H; ++h)
        sum += static_cast<double>(to_float(p.hidden[t * p.hidden_stride + h])) *
               to_float(p.weight[n * p.weight_stride + h]);
      merged[t * p.N + n] = static_cast<float>(sum);
    }
  }
  take_apart(epilogue_over(p, merged.data()));
}

}  // namespace k3::oracle
