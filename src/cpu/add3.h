// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contract/add3.h"
#include "dispatch/kernel.h"

namespace k3::cpu {

void add3(const Add3Problem& problem, const Target& target);

}  // namespace k3::cpu
