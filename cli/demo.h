// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace k3::cli {

/// Prints the table; 0 where everything agrees with its reference, else 1.
int run_demo(const std::string& folder);

}  // namespace k3::cli
