// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "contract/moe_route_topk.h"
#include "oracle/element.h"
#include "oracle/moe_route.h"
#include "oracle/oracle.h"

namespace k3::oracle {

/// exp(88.7228...) is the largest number of fp32.
constexpr double kLeastScore = -88.72284;

void route(const MoeRouting& p) {
  const int k = p.options.topk;
  std::vector<float> a(static_cast<std::size_t>(p.num_experts));
  std::vector<float> b(a.size());
  std::vector<int> order(a.size());
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    for (int e = 0; e < p.num_experts; ++e) {
      const double x = load(p.scores, p.scores_dtype, t * p.scores_stride + e);
      a[e] = x < kLeastScore ? 0.0F : static_cast<float>(1.0 / (1.0 + std::exp(-x)));
      b[e] = a[e] + p.bias[e];
      if (std::isnan(b[e])) b[e] = -1e30F;
    }
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return b[i] > b[j]; });
    std::vector<int> chosen(order.begin(), order.begin() + k);
    if (!p.options.sorted) std::sort(chosen.begin(), chosen.end());

    double sum = 0.0;
    for (int e : chosen) sum += a[e];
    const double n = p.options.renormalize && sum > 0.0 ? sum : 1.0;
    for (int i = 0; i < k; ++i) {
      const auto w = static_cast<float>(a[chosen[i]] / n * p.options.routed_scaling_factor);
      p.weights[t * p.weights_stride + i] = w;
      p.ids[t * p.ids_stride + i] = chosen[i];
      if (p.packed != nullptr) p.packed[t * p.packed_stride + i] = pack_topk(chosen[i], w);
    }
  }
}

void moe_route_topk(const MoeRouteTopkArgs& args) { route(check(args)); }

}  // namespace k3::oracle
