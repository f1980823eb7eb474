// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace k3::cli {

/// Exit status and standard output (without its last line end) of a program; what it says on stderr
/// is dropped. A program that is not there has status 127.
struct ProgramOutput {
  int status = 127;
  std::string text;
};
ProgramOutput output_of(const std::vector<std::string>& command);

/// Exit status of a program that shares our stdout and stderr.
int run_program(const std::vector<std::string>& command);

}  // namespace k3::cli
