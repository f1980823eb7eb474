// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "k3/export.h"

#define K3_VERSION_MAJOR 0
#define K3_VERSION_MINOR 1
#define K3_VERSION_PATCH 0

namespace k3 {

/// "0.1.0"
K3_API const char* version();

}  // namespace k3
