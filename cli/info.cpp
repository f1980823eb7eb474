// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "harness/device.h"
#include "k3/device.h"
#include "k3/version.h"

namespace k3::cli {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

int print_as_json() {
  const CpuInfo cpu = cpu_info();
  std::string why;
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const CudaDeviceInfo& d : cuda_devices(&why))
    devices.push_back({{"index", d.index},
                       {"name", d.name},
                       {"arch", d.arch},
                       {"num_sms", d.num_sms},
                       {"memory_bytes", d.memory_bytes},
                       {"l2_bytes", d.l2_bytes},
                       {"pdl", d.pdl},
                       {"has_image", d.has_image}});
  print_json({{"version", version()},
              {"commit", commit()},
              {"cpu", {{"name", cpu.name}, {"threads", cpu.threads}, {"simd", cpu.simd_target}}},
              {"cuda", {{"built", built_with_cuda()}, {"devices", devices}, {"why_none", why}}}});
  return kExitOk;
}

int print_as_text() {
  const CpuInfo cpu = cpu_info();
  fmt::print("k3    {} {}\n", version(), commit());
  fmt::print("cpu   {}, {} threads, {}\n", cpu.name, cpu.threads, cpu.simd_target);
  std::string why;
  const auto devices = cuda_devices(&why);
  if (devices.empty()) fmt::print("cuda  none: {}\n", why);
  for (const CudaDeviceInfo& d : devices)
    fmt::print("cuda  {}: {}, sm_{}, {} SMs, {:.0f} MiB, L2 {:.0f} MiB, {}\n", d.index, d.name,
               d.arch, d.num_sms, static_cast<double>(d.memory_bytes) / kMiB,
               static_cast<double>(d.l2_bytes) / kMiB,
               d.has_image ? "has code in this build" : "no code in this build");
  return kExitOk;
}

}  // namespace

Action add_info(CLI::App& command) {
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON");
  return [json] { return *json ? print_as_json() : print_as_text(); };
}

}  // namespace k3::cli
