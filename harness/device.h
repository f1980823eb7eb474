// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "harness/runner.h"

/// The CUDA half of the runner. In a build without CUDA each function throws UnsupportedError.
namespace k3::harness {

/// Null where the current CUDA device, on which everything here runs, can be used; else the reason,
/// good until the next call of this thread.
const char* cuda_unusable();

double run_once_on_device(const Driver& driver, Bundle& bundle, const RunOptions& options);
Timing time_op_on_device(const Driver& driver, const BenchShape& shape, const RunOptions& options);
Ceilings measure_cuda_ceilings();

}  // namespace k3::harness
