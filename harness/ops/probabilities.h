// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "harness/inputs.h"

namespace k3::harness {

/// [B, V] f32, rows that sum to 1, with a long tail as a softmax has: a twentieth of the values
/// holds most of the mass, and the smallest are some 10^10 times below the largest.
inline Tensor random_probabilities(Random& random, std::int64_t B, std::int64_t V) {
  Tensor probs = Tensor::dense(DType::kF32, {B, V});
  std::vector<double> weights(static_cast<std::size_t>(V));
  for (std::int64_t b = 0; b < B; ++b) {
    double sum = 0.0;
    for (double& w : weights) {
      const double u = random.uniform(0.06, 1.0);
      const double u4 = u * u * u * u;
      w = u4 * u4 * u;
      sum += w;
    }
    for (std::int64_t v = 0; v < V; ++v)
      probs.set(b * V + v, weights[static_cast<std::size_t>(v)] / sum);
  }
  return probs;
}

}  // namespace k3::harness
