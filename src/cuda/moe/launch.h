// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "dispatch/kernel.h"

namespace k3::cuda::moe {

/// One CTA a token on the target's device and stream; past 2^31 of them, several launches. The
/// kernel's last parameter is the token of its first CTA. @throws CudaError
template <class Kernel, class... Args>
void launch_over_tokens(std::int64_t num_tokens, int threads, std::size_t smem_bytes,
                        const Target& target, Kernel kernel, const Args&... args) {
  constexpr std::int64_t kMaxGrid = (std::int64_t{1} << 31) - 1;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  for (std::int64_t first = 0; first < num_tokens; first += kMaxGrid) {
    LaunchConfig config = launch_config(target);
    config.grid = dim3(static_cast<unsigned>(std::min(kMaxGrid, num_tokens - first)));
    config.block = dim3(static_cast<unsigned>(threads));
    config.dynamic_smem_bytes = smem_bytes;
    K3_CUDA_CHECK(launch(kernel, config, args..., first));
  }
}

}  // namespace k3::cuda::moe
