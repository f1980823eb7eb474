// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace k3::cpu {

/// The SIMD target that dynamic dispatch takes on this CPU, lower case.
std::string chosen_target();
/// Every target in this build, best first.
std::vector<std::string> compiled_targets();
/// Makes dynamic dispatch take one target from now on, for tests; an empty name goes back to the
/// best. False, and nothing changed, where this CPU or build lacks it.
bool use_target(const std::string& name);

}  // namespace k3::cpu
