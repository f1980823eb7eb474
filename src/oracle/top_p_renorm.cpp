// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "contract/top_p_renorm.h"
#include "oracle/oracle.h"

namespace k3::oracle {

void top_p_renorm(const TopPRenormArgs& args) {
  const TopPRenormProblem p = check(args);
  for (std::int64_t row = 0; row < p.B; ++row) {
    const float* const from = p.probs + row * p.probs_stride;
    const double top_p = p.top_ps != nullptr ? p.top_ps[row * p.top_ps_stride] : p.top_p;
    std::vector<double> probs(static_cast<std::size_t>(p.V));
    for (std::size_t i = 0; i < probs.size(); ++i)
      probs[i] = from[i] > 0.0F ? std::min(static_cast<double>(from[i]), 1.0) : 0.0;

    std::vector<double> sorted = probs;
    std::sort(sorted.begin(), sorted.end());
    std::size_t cutoff = 0;
    for (double mass = 0.0; cutoff < sorted.size(); ++cutoff) {
      mass += sorted[cutoff];
      if (mass >= 1.0 - top_p) break;
    }
    if (cutoff == sorted.size() && cutoff > 0) --cutoff;
    double kept = 0.0;
    for (const double x : probs)
      if (x >= sorted[cutoff]) kept += x;
    for (std::size_t i = 0; i < probs.size(); ++i)
      p.out[row * p.out_stride + static_cast<std::int64_t>(i)] =
          probs[i] >= sorted[cutoff] && kept > 0.0 ? static_cast<float>(probs[i] / kept) : 0.0F;
  }
}

}  // namespace k3::oracle
