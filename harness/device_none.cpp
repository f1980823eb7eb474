// SPDX-License-Identifier: Apache-2.0
#include "harness/device.h"
#include "k3/error.h"

namespace k3::harness {

const char* cuda_unusable() { return "this build of libk3 has no CUDA kernels"; }

double run_once_on_device(const Driver&, Bundle&, const RunOptions&) {
  throw UnsupportedError(cuda_unusable());
}

Timing time_op_on_device(const Driver&, const BenchShape&, const RunOptions&) {
  throw UnsupportedError(cuda_unusable());
}

Ceilings measure_cuda_ceilings() { throw UnsupportedError(cuda_unusable()); }

}  // namespace k3::harness
