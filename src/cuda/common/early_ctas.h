// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/launch.h"
#include "cuda/device.h"

namespace k3::cuda {

/// How many CTAs, the first of a grid, may start while the predecessor in the stream still runs:
/// as many as all SMs hold of CTAs of so many threads without other needs. 0 where the launch is
/// not programmatically dependent.
inline unsigned early_ctas(const Target& target, int threads) {
  if (!target.pdl) return 0;
  return static_cast<unsigned>(properties(target.device.index).num_sms * (kThreadsOfSm / threads));
}

}  // namespace k3::cuda
