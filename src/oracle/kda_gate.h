// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

namespace k3::oracle {

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

/// The log decay of one channel from x = raw gate + bias, for a problem with A_log (null: a = 1)
/// and lower_bound. `h` is the head that A_log belongs to.
template <class Problem>
double log_decay_of(const Problem& p, double x, int h) {
  const double a = p.A_log != nullptr ? std::exp(static_cast<double>(p.A_log[h])) : 1.0;
  return p.has_lower_bound ? p.lower_bound * sigmoid(a * x) : -a * softplus(x);
}

}  // namespace k3::oracle
