// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "harness/driver.h"
#include "harness/tensor.h"

namespace k3::harness {

/// One output held against its reference. Shapes must agree; dtypes may differ (`exact` then
/// compares values).
struct Comparison {
  std::string name;
  double err_ratio = 0.0;
  double row_err_ratio = 0.0;  ///< of the worst row, as in Tolerance
  double max_abs = 0.0;
  std::int64_t worst = -1;   ///< flat index of the largest error (or of the first NaN/Inf mismatch)
  bool finite_match = true;  ///< NaN and Inf stand at the same places
  bool passed = false;
  std::string why;  ///< empty where passed; else a sentence with the worst coordinate
};

Comparison compare(const std::string& name, const Tensor& reference, const Tensor& result,
                   const Tolerance& tolerance);

/// Where a row of the first axis that the reference left as it was, bit for bit, has other bits: a
/// slot of a pool that no request names. Empty if none.
std::string touched_rows(const Driver& driver, const Bundle& before, const Bundle& reference,
                         const Bundle& result);

/// Where a byte outside the written elements differs: gaps of any tensor, whole inputs. Empty if
/// none. Outputs and in-place arguments may change their elements only.
std::string stray_writes(const Driver& driver, const Bundle& before, const Bundle& after);

}  // namespace k3::harness
