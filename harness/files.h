// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "harness/driver.h"
#include "harness/tensor.h"

namespace k3::harness {

/// A `k3 run` file, taken apart for one op.
struct RunFile {
  Bundle bundle;                           ///< inputs, in-place tensors, scalars, and added outputs
  std::map<std::string, Tensor> expected;  ///< by output or in-place argument
};

/// Reads inputs and scalars (with the file format's aliases), expected outputs (an in-place
/// argument `x` stands as `x_out`), and adds the outputs that the call needs. @throws io::FileError
RunFile load_run_file(const Driver& driver, const std::string& path);

/// Writes outputs under their names and in-place arguments as `<name>_out`.
void save_outputs(const Driver& driver, const Bundle& bundle, const std::string& path);

}  // namespace k3::harness
