// SPDX-License-Identifier: Apache-2.0
#include "dispatch/debug_checks.h"

#include <cstdlib>

#include "dispatch/kernel.h"
#if K3_WITH_CUDA
#include "cuda/device.h"
#endif

namespace k3::dispatch {

bool debug_checks() { return flag_is_set("K3_DEBUG_CHECKS"); }

bool copy_to_host([[maybe_unused]] const char* op, [[maybe_unused]] IndexList& list,
                  [[maybe_unused]] const Target& target,
                  [[maybe_unused]] std::vector<std::int32_t>& storage) {
#if K3_WITH_CUDA
  if (cuda::is_capturing(target.stream)) {
    report(op, "index values not checked: the stream is being captured");
    return false;
  }
  storage.resize(static_cast<std::size_t>(list.size));
  cuda::read_strided(target.device.index, target.stream, list.data, list.stride, storage);
  list.data = storage.data();
  list.stride = 1;
  return true;
#else
  return false;
#endif
}

}  // namespace k3::dispatch
