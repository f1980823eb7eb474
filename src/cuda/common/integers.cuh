// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "contract/integers.h"

namespace k3::cuda {

__device__ inline std::int64_t load_integer(const IntegerList& list, std::int64_t n) {
  return list.is_wide ? static_cast<const std::int64_t*>(list.data)[n * list.stride]
                      : static_cast<const std::int32_t*>(list.data)[n * list.stride];
}

}  // namespace k3::cuda
