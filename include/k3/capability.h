// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "k3/context.h"
#include "k3/export.h"

namespace k3 {

/// `kVerified`: this variant has run on this arch and agreed with the oracle.
/// `kCompiledNotRun`: an image is in the library, but nobody has run it yet.
enum class Status { kVerified, kCompiledNotRun };

/// One row of the table: one variant of an op on one arch. `select()` takes the first row of an op
/// that matches; the order of rows is the order of preference.
struct Capability {
  std::string op;
  Backend backend = Backend::kCpu;
  std::string variant;  ///< the name that `K3_FORCE=op:variant` takes
  std::string arch;     ///< "avx2", "avx3", ...; "sm_90a", "sm_100", ...
  Status status = Status::kCompiledNotRun;
  std::string conditions;  ///< what the variant asks of its input, in words
};

/// Every variant that this build holds, in order of preference within an op.
K3_API std::vector<Capability> capabilities();

K3_API const char* name_of(Backend backend);
K3_API const char* name_of(Status status);

}  // namespace k3
