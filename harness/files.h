// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/compare.h"
#include "harness/driver.h"
#include "harness/tensor.h"

namespace k3::harness {

/// A `k3 run` file, taken apart for one op.
struct RunFile {
  Bundle bundle;                           ///< inputs, in-place tensors, scalars, and added outputs
  std::map<std::string, Tensor> expected;  ///< by output or in-place argument
  std::vector<std::string> ignored;        ///< tensors of the file that play no role
};

/// The op that a file is for, by its metadata; empty where it names none. @throws io::FileError
std::string op_of_file(const std::string& path);

/// Reads inputs and scalars (with the file format's aliases), expected outputs (an in-place
/// argument `x` stands as `x_out`), and adds the outputs that the call needs, an optional one with
/// as many rows as the file expects of it. @throws io::FileError
RunFile load_run_file(const Driver& driver, const std::string& path,
                      const std::map<std::string, std::string>& scalars = {});

/// Everything the file expects, held against what a call has left in `result`.
std::vector<Comparison> compare_expected(const RunFile& file, const Bundle& result,
                                         const Tolerance& tolerance);

/// Writes outputs under their names and in-place arguments as `<name>_out`.
void save_outputs(const Driver& driver, const Bundle& bundle, const std::string& path);

}  // namespace k3::harness
