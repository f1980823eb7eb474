// SPDX-License-Identifier: Apache-2.0
#include "dispatch/debug_integers.h"

#include "dispatch/kernel.h"
#if K3_WITH_CUDA
#include "cuda/device.h"
#endif

namespace k3::dispatch {

bool copy_to_host([[maybe_unused]] const char* op, [[maybe_unused]] IntegerList& list,
                  [[maybe_unused]] const Target& target,
                  [[maybe_unused]] std::vector<std::int64_t>& storage) {
#if K3_WITH_CUDA
  if (cuda::is_capturing(target.stream)) {
    report(op, "index values not checked: the stream is being captured");
    return false;
  }
  const auto size = static_cast<std::size_t>(list.size);
  storage.resize(size);
  if (list.is_wide) {
    cuda::read_strided(target.device.index, target.stream,
                       static_cast<const std::int64_t*>(list.data), list.stride, storage);
  } else {
    std::vector<std::int32_t> narrow(size);
    cuda::read_strided(target.device.index, target.stream,
                       static_cast<const std::int32_t*>(list.data), list.stride, narrow);
    storage.assign(narrow.begin(), narrow.end());
  }
  list.data = storage.data();
  list.is_wide = true;
  list.stride = 1;
  return true;
#else
  return false;
#endif
}

}  // namespace k3::dispatch
