// SPDX-License-Identifier: Apache-2.0
#include "k3/capability.h"

#include <algorithm>
#include <string_view>

#include "cpu/targets.h"
#include "dispatch/archs.h"
#include "dispatch/kernel.h"
#include "ops/kernels.h"

namespace k3 {
namespace {

/// Where a variant has run and agreed with the oracle. A new entry needs a report of `k3 check
/// --full` from such a machine.
struct VerifiedOn {
  std::string_view op;
  std::string_view variant;
  std::string_view arch;
};

constexpr VerifiedOn kVerified[] = {
    {"kda_prefill", "chunked", "ssse3"},        {"kda_prefill", "chunked", "sse4"},
    {"kda_prefill", "chunked", "avx2"},         {"kda_prefill", "chunked", "avx3"},
    {"kda_fused_decode", "streaming", "ssse3"}, {"kda_fused_decode", "streaming", "sse4"},
    {"kda_fused_decode", "streaming", "avx2"},  {"kda_fused_decode", "streaming", "avx3"},
    {"situ_and_mul", "simd", "ssse3"},          {"situ_and_mul", "simd", "sse4"},
    {"situ_and_mul", "simd", "avx2"},           {"situ_and_mul", "simd", "avx3"},
    {"situ_and_mul", "vec8", "sm_90a"},         {"situ_and_mul", "scalar", "sm_90a"},
};

Status status_of(std::string_view op, std::string_view variant, std::string_view arch) {
  const bool verified = std::any_of(std::begin(kVerified), std::end(kVerified), [&](const auto& v) {
    return v.op == op && v.variant == variant && v.arch == arch;
  });
  return verified ? Status::kVerified : Status::kCompiledNotRun;
}

template <class Problem>
void append(std::vector<Capability>& rows, const char* op,
            std::span<const Kernel<Problem>> kernels) {
  for (const auto& kernel : kernels) {
    const auto archs =
        kernel.backend == Backend::kCpu ? cpu::compiled_targets() : dispatch::cuda_image_archs();
    for (const auto& arch : archs)
      rows.push_back({op, kernel.backend, kernel.variant, arch, status_of(op, kernel.variant, arch),
                      kernel.conditions});
  }
}

}  // namespace

std::vector<Capability> capabilities() {
  std::vector<Capability> rows;
  append(rows, "kda_prefill", kda_prefill_kernels());
  append(rows, "kda_fused_decode", kda_fused_decode_kernels());
  append(rows, "situ_and_mul", situ_and_mul_kernels());
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
