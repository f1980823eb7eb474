// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/launch.h"
#include "cuda/device.h"

namespace k3::cuda {

/// How many CTAs of so many threads, without other needs, all SMs hold at once.
inline unsigned ctas_of_wave(const Target& target, int threads) {
  return static_cast<unsigned>(properties(target.device.index).num_sms * (kThreadsOfSm / threads));
}

/// How many CTAs, the first of a grid, may start while the predecessor in the stream still runs: a
/// wave of them, and 0 where the launch is not programmatically dependent.
inline unsigned early_ctas(const Target& target, int threads) {
  return target.pdl ? ctas_of_wave(target, threads) : 0;
}

}  // namespace k3::cuda
