// SPDX-License-Identifier: Apache-2.0
#include "k3/capability.h"

#include "cpu/targets.h"
#include "dispatch/archs.h"
#include "dispatch/kernel.h"
#include "ops/all_ops.h"

namespace k3 {

void dispatch::append_rows(std::vector<Capability>& rows, const char* op, Backend backend,
                           const char* variant, const char* conditions, const char* verified_on,
                           const char* only_archs) {
  const auto archs =
      backend == Backend::kCpu ? cpu::compiled_targets() : dispatch::cuda_image_archs();
  for (const auto& arch : archs) {
    if (only_archs != nullptr && !contains_word(only_archs, arch)) continue;
    const Status status =
        contains_word(verified_on, arch) ? Status::kVerified : Status::kCompiledNotRun;
    rows.push_back({op, backend, variant, arch, status, conditions});
  }
}

std::vector<Capability> capabilities() {
  std::vector<Capability> rows;
  for (const OpEntry& entry : all_ops()) entry.append_rows(rows);
  return rows;
}

const char* name_of(Backend backend) {
  switch (backend) {
    case Backend::kAuto:
      return "auto";
    case Backend::kCpu:
      return "cpu";
    case Backend::kCuda:
      return "cuda";
  }
  return "unknown";
}

const char* name_of(Status status) {
  return status == Status::kVerified ? "verified" : "compiled-not-run";
}

}  // namespace k3
