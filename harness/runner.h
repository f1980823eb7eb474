// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/compare.h"
#include "harness/driver.h"

namespace k3::harness {

enum class RunOn { kCpu, kCuda, kOracle };

struct RunOptions {
  RunOn on = RunOn::kCpu;
  int threads = 0;
  std::string variant;  ///< forced by name; empty = select() decides

  /// For ExecContext::variant.
  [[nodiscard]] const char* forced() const { return variant.empty() ? nullptr : variant.c_str(); }
};

/// Runs the op once over the bundle, in place: on CUDA the tensors travel to the device and back.
/// The workspace is allocated here, to the byte. Returns microseconds of the call alone.
double run_once(const Driver& driver, Bundle& bundle, const RunOptions& options);

struct CaseResult {
  std::string case_name;
  std::string variant;
  bool passed = false;
  bool skipped = false;
  std::string why;  ///< of a failure or a skip
  std::vector<Comparison> comparisons;
};

/// One case on one variant against the oracle: outputs within tolerance, no stray write, no write
/// to a row that the oracle leaves alone, and the same bits on a second run. A CUDA variant may
/// refuse a case, which skips it; a CPU variant serves every valid call, so there it is a failure.
CaseResult check_case(const Driver& driver, const Case& test_case, const RunOptions& options);

struct Timing {
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
  double floor_us = 0;  ///< what the machine's rates allow, see Rounds
};

class Limits;

/// Repeated runs of the op, held against `limits`. As many sets of tensors are rotated as it takes
/// for a set to be cold again when its turn comes. CPU: wall clock per call, in Rounds. CUDA:
/// graphs of launches, see time_in_graphs.
Timing time_op(const Driver& driver, const BenchShape& shape, const RunOptions& options,
               Limits& limits);

struct Ceilings {
  double read_write_gbps = 0;  ///< in-place scale of a buffer past the caches, bytes read + written
  double fma_gflops = 0;       ///< fp32 fused multiply-add, 2 per operation
  double tensor_gflops = 0;    ///< CUDA: products of bf16 matrices, fp32 sums; 0 on the CPU
  double empty_launch_us = 0;  ///< CUDA: an empty kernel in a graph; 0 on the CPU
};

}  // namespace k3::harness
